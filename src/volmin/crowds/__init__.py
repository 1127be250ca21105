"""Several annotators: their answers, a transition matrix for each, and the consensus of all.

Every annotator m has a matrix ``T[m]``, with ``T[m, i, j] = P(answer = i | clean label = j)``; one classifier of the
clean label is shared by all. A group of single labels (a source, a year, a hospital) is an annotator too.
"""

from volmin.crowds.aggregation import dawid_skene, vote_shares
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit, fit_crowd
from volmin.crowds.encoding import EncodedAnswers, encode_matrix, encode_votes, several_annotators
from volmin.crowds.transitions import (
    AnnotatorTransitions,
    Deviations,
    annotators_log_probs,
    answers_nll,
    posterior_log_volume,
    stacked,
)

__all__ = [
    "AnnotatorTransitions",
    "Answers",
    "CrowdFit",
    "Deviations",
    "EncodedAnswers",
    "annotators_log_probs",
    "answers_nll",
    "dawid_skene",
    "encode_matrix",
    "encode_votes",
    "fit_crowd",
    "posterior_log_volume",
    "several_annotators",
    "stacked",
    "vote_shares",
]
