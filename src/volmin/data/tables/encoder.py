"""Encoding of a table's columns as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from volmin.data.encoders import NamedEncoder
from volmin.data.tables.columns import EmbeddedText, Encoding, Text, from_json
from volmin.data.tables.files import first_line
from volmin.data.tables.recognition import TYPES, ColumnUse, fit_column
from volmin.exceptions import DataError, InputError
from volmin.progress import Progress, tracked

MOST_SINGLE = 40
"""Number of columns up to which each has a line of its own."""


class TableEncoder:
    """Encodes the columns of a table as numbers; fitted on training rows and stored with a model.

    Numbers, truth values and dates are standardised, also if they are written as people write them. Outliers are
    clipped to ten interquartile ranges from the median, and missing values are replaced by the median, with an
    additional feature that marks them. Categories are one-hot encoded by their most frequent values, with one feature
    for all others. Text is encoded by TF-IDF, reduced to a few features. Columns that hold nothing to learn from are
    left out. ``uses`` says what became of each column.
    """

    def __init__(self, text_encoder: NamedEncoder | None = None) -> None:
        """Create an encoder without columns.

        Args:
            text_encoder: NamedEncoder for the columns of text, in place of TF-IDF.
        """
        self.text_encoder = text_encoder
        self.columns: list[Encoding] = []
        self.uses: list[ColumnUse] = []

    @property
    def feature_names(self) -> list[str]:
        """(F,) names of the features."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def text_columns(self) -> list[str]:
        """Names of the columns that are encoded as text."""
        return [use.name for use in self.uses if use.kind == "text"]

    def fit(
        self,
        frame: pl.DataFrame,
        columns: Sequence[str],
        types: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> TableEncoder:
        """Fit the encoding of ``columns`` to the rows of ``frame``.

        Args:
            frame: Table.
            columns: Names of the columns to encode.
            types: Types of some columns (``TYPES``); those of the others are recognised from their values.
            progress: Callback that is called after each column.
        """
        types = check_types(types or {}, frame.columns)
        self.columns, self.uses = [], []
        for name in tracked(columns, "recognising columns", len(columns), progress):
            use, encodings = fit_column(frame[name], types.get(name), self.text_encoder, progress)
            self.uses.append(use)
            self.columns += encodings
        if not self.columns:
            reasons = ", ".join(f"{use.name!r} ({use.note})" for use in self.uses[:10])
            hint = f": {reasons}. Set the type of a column (types=, --types)" if reasons else ""
            raise DataError(f"The table has no feature columns besides its labels{hint}.")
        return self

    def transform(self, frame: pl.DataFrame, progress: Progress | None = None) -> NDArray[np.float32]:
        """(N, F) features of the rows of ``frame``."""
        self._check(frame)
        x = np.empty((frame.height, len(self.feature_names)), dtype=np.float32)
        place = 0
        for column in tracked(self.columns, "encoding columns", len(self.columns), progress):
            width = len(column.feature_names)
            series = frame[column.name]
            textual = isinstance(column, Text | EmbeddedText)
            encoded = column.encode(series, progress) if textual else column.encode(series)
            x[:, place : place + width] = encoded
            place += width
        return x

    def transform_sparse(self, frame: pl.DataFrame) -> sparse.csr_matrix:
        """(N, F') features in which text is not reduced; linear models of text are better on these."""
        self._check(frame)
        parts = [
            column.encode_sparse(frame[column.name])
            if isinstance(column, Text)
            else sparse.csr_matrix(column.encode(frame[column.name]))
            for column in self.columns
        ]
        return sparse.csr_matrix(sparse.hstack(parts))

    def to_json(self) -> dict[str, Any]:
        """Content of the encoder in JSON types, for ``from_json``."""
        columns = [{"kind": column.kind, **column.to_json()} for column in self.columns]
        return {"columns": columns, "uses": [asdict(use) for use in self.uses]}

    @classmethod
    def from_json(cls, content: dict[str, Any], text_encoder: NamedEncoder | None = None) -> TableEncoder:
        """Restore an encoder from the result of ``to_json``; any other content is a ``DataError``."""
        encoder = cls(text_encoder)
        try:
            encoder.columns = [from_json(column, text_encoder) for column in content["columns"]]
            encoder.uses = [ColumnUse(**use) for use in content.get("uses", ())]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"This is not the content of a table encoder: {first_line(error)}") from None
        return encoder

    def _check(self, frame: pl.DataFrame) -> None:
        lacking = {column.name for column in self.columns} - set(frame.columns)
        if lacking:
            raise DataError(f"The table lacks columns that the encoding needs: {', '.join(sorted(lacking))}.")


def check_types(types: Mapping[str, str], columns: Sequence[str]) -> dict[str, str]:
    """The types that a user has set for columns; an ``InputError`` names a column or a type that does not exist."""
    for name, type_ in types.items():
        if name not in columns:
            raise InputError(
                f"There is no column {name!r} whose type could be set. Columns: {', '.join(columns[:20])}."
            )
        if type_ not in TYPES:
            raise InputError(f"The type of the column {name!r} must be one of {', '.join(TYPES)}, but is {type_!r}.")
    return dict(types)


def describe_uses(uses: Sequence[ColumnUse]) -> list[tuple[str, str, str]]:
    """(columns, kind, note) of each column; of many, neighbouring ones with the same kind and note share a line."""
    lines: list[tuple[list[str], str, str]] = []
    for use in uses:
        name = use.name if use.name.strip() else "(no name)"
        if len(uses) > MOST_SINGLE and lines and (use.kind, use.note) == lines[-1][1:]:
            lines[-1][0].append(name)
        else:
            lines.append(([name], use.kind, use.note))
    return [
        (names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})", kind, note)
        for names, kind, note in lines
    ]
