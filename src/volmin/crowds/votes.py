"""Which items need another vote, and whose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from volmin._typing import Array, Labels
from volmin.crowds.aggregation import log
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit

SMALLEST_GAIN = 1e-3
"""Nobody is asked for an answer that is expected to help less: that of a spammer, or to an item that is certain."""


@dataclass(frozen=True)
class NextVotes:
    """The most useful additional votes, the largest gain first.

    Attributes:
        item: (K,) items.
        annotator: (K,) the annotator whose answer to this item would help most; -1 if all who could help have
            answered it.
        gain: (K,) by how much this answer is expected to raise the probability that the consensus is right.
    """

    item: Labels
    annotator: Labels
    gain: Array


def next_votes(answers: Answers, fit: CrowdFit, most: int = 1000) -> NextVotes:
    """The best annotator to ask about each of the ``most`` items with the least certain consensus.

    An answer y of annotator m is expected with probability ``sum_k p_k T[m, y, k]`` and changes the posterior p to one
    proportional to ``p_k T[m, y, k] ** w``, with the weight w of the model.
    """
    doubt = 1 - fit.clean_probs.max(axis=1)
    items = np.argsort(-doubt, kind="stable")[:most]
    asked = np.zeros((len(items), answers.num_annotators), dtype=bool)
    place = np.full(answers.num_items, -1)
    place[items] = np.arange(len(items))
    mine = place[answers.item] >= 0
    asked[place[answers.item[mine]], answers.annotator[mine]] = True
    known = np.bincount(answers.annotator, minlength=answers.num_annotators) > 0
    gains = np.stack([_gain(fit.clean_probs[items], T, fit.weight) for T in fit.transitions], axis=1)
    gains[asked | ~known] = -1
    annotator = gains.argmax(axis=1)
    gain = gains[np.arange(len(items)), annotator]
    order = np.argsort(-gain, kind="stable")
    helps = gain >= SMALLEST_GAIN
    return NextVotes(items[order], np.where(helps, annotator, -1)[order], np.where(helps, gain, 0)[order])


def _gain(p: Array, T: Array, weight: float) -> Array:
    """Expected rise of the largest of the posteriors p, (N, C), by an answer of an annotator with matrix T."""
    after = softmax(log(p)[:, None] + weight * log(T), axis=2).max(axis=2)
    return ((p @ T.T) * after).sum(axis=1) - p.max(axis=1)
