"""Several annotators: their answers, a transition matrix for each, and the consensus of all.

Every annotator m has a matrix ``T[m]``, with ``T[m, i, j] = P(answer = i | clean label = j)``; one classifier of the
clean label is shared by all. A group of single labels (a source, a year, a hospital) is an annotator too.
"""

from volmin.crowds.aggregation import dawid_skene, vote_shares
from volmin.crowds.answers import Answers
from volmin.crowds.comparison import AnnotatorComparison, compare_annotators, contexts
from volmin.crowds.consensus import CrowdFit, fit_crowd
from volmin.crowds.copies import Copying, find_copies, with_sources
from volmin.crowds.encoding import (
    EncodedAnswers,
    encode_answers,
    encode_groups,
    encode_matrix,
    encode_votes,
    is_long_table,
    several_annotators,
)
from volmin.crowds.information import Information, information
from volmin.crowds.rates import Rates, annotator_rates
from volmin.crowds.transitions import (
    AnnotatorTransitions,
    Deviations,
    annotators_log_probs,
    answers_nll,
    posterior_log_volume,
    stacked,
)
from volmin.crowds.votes import NextVotes, next_votes

__all__ = [
    "AnnotatorComparison",
    "AnnotatorTransitions",
    "Answers",
    "Copying",
    "CrowdFit",
    "Deviations",
    "EncodedAnswers",
    "Information",
    "NextVotes",
    "Rates",
    "annotator_rates",
    "annotators_log_probs",
    "answers_nll",
    "compare_annotators",
    "contexts",
    "dawid_skene",
    "encode_answers",
    "encode_groups",
    "encode_matrix",
    "encode_votes",
    "find_copies",
    "fit_crowd",
    "information",
    "is_long_table",
    "next_votes",
    "posterior_log_volume",
    "several_annotators",
    "stacked",
    "vote_shares",
    "with_sources",
]
