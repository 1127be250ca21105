"""Words of a text that speak against its label, for a person who reviews it.

They are more frequent among the texts labelled as suggested than among those labelled as given.
This explains the suggestion by the labels of other rows; it is not how the models decided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from volmin._typing import Labels
from volmin.auditing.result import AuditResult
from volmin.data.tables import as_frame

COLUMN = "words against the label"
MOST_WORDS = 6
MOST_COUNTED = 50_000
"""Number of rows, drawn at random, whose words are counted."""

LEAST_RATIO = 1.5
"""Ratio of the frequencies from which on a word is named."""


def with_words_against(result: AuditResult, examples: Any, rows: Labels) -> Any:
    """The table with a first column of these words; unchanged if no column was encoded as text.

    Args:
        result: Result of an audit of a table.
        examples: What the report shows of all rows.
        rows: (n,) rows for which words are named.
    """
    kinds = {column["name"]: column["kind"] for column in result.provenance.get("columns", ())}
    frame = as_frame(examples) if kinds and examples is not None else None
    if frame is None or frame.height != len(result):
        return examples
    texts = [name for name in frame.columns if kinds.get(name) == "text"]
    doubtful = rows[result.suggested_codes[rows] != result.codes[rows]]
    if not texts or not len(doubtful):
        return examples
    joined = frame.select(pl.concat_str(pl.col(texts).cast(pl.String), separator=" ", ignore_nulls=True)).to_series()
    named = np.full(len(result), "", dtype=object)
    named[doubtful] = _words(joined, result, doubtful)
    return pl.DataFrame([pl.Series(COLUMN, named.tolist()), *frame.drop(COLUMN, strict=False).get_columns()])


def _words(texts: pl.Series, result: AuditResult, rows: Labels) -> list[str]:
    sample = np.random.default_rng(0).permutation(len(texts))[:MOST_COUNTED]
    counter = CountVectorizer(binary=True, min_df=2 if len(sample) >= 20 else 1, token_pattern=r"(?u)\b\w\w+\b")
    try:
        found = sparse.csr_matrix(counter.fit_transform(texts[sample.tolist()].to_list()))
    except ValueError:  # no word is frequent enough
        return [""] * len(rows)
    words: list[str] = counter.get_feature_names_out().tolist()
    codes = result.codes[sample]
    texts_of_class = np.bincount(codes, minlength=len(result.classes))
    members = np.eye(len(result.classes), dtype=np.float32)[codes]
    # The own label of a row counts too, so one occurrence is never evidence by itself.
    shares = (found.T @ members + 0.5) / (texts_of_class + 1)
    own = sparse.csr_matrix(counter.transform(texts[rows.tolist()].to_list()))
    answer = []
    for place, row in enumerate(rows):
        present = own.indices[own.indptr[place] : own.indptr[place + 1]]
        ratio = shares[present, result.suggested_codes[row]] / shares[present, result.codes[row]]
        best = np.argsort(-ratio, kind="stable")[:MOST_WORDS]
        answer.append(", ".join(words[present[k]] for k in best if ratio[k] >= LEAST_RATIO))
    return answer
