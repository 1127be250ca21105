"""Answers of annotators to items, with sums over the answers of an item and of an annotator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from volmin._typing import AnyArray, Array, Labels
from volmin.exceptions import InputError


@dataclass(frozen=True)
class Answers:
    """A answers, each of one annotator to one item; any of them may be missing.

    Attributes:
        item: (A,) items in ``0 .. num_items - 1``.
        annotator: (A,) annotators in ``0 .. num_annotators - 1``.
        label: (A,) labels in ``0 .. num_labels - 1``.
        num_items: Number of items N.
        num_annotators: Number of annotators M.
        num_classes: Number of classes C.
        num_labels: Number of different answers R: C, or more if some are not classes, such as an abstention.
    """

    item: Labels
    annotator: Labels
    label: Labels
    num_items: int
    num_annotators: int
    num_classes: int
    num_labels: int = 0

    def __post_init__(self) -> None:
        if self.num_labels == 0:
            object.__setattr__(self, "num_labels", self.num_classes)
        if self.num_labels < self.num_classes:
            raise InputError(f"There are {self.num_classes} classes, but only {self.num_labels} different answers.")
        limits = {"item": self.num_items, "annotator": self.num_annotators, "label": self.num_labels}
        for name, limit in limits.items():
            values = getattr(self, name)
            if values.shape != self.item.shape or (len(values) and not 0 <= values.min() <= values.max() < limit):
                raise InputError(f"{name} must hold a number in 0..{limit - 1} for each of {len(self.item)} answers.")

    @classmethod
    def from_matrix(cls, matrix: AnyArray, num_classes: int, num_labels: int = 0) -> Answers:
        """Answers of an (N, M) matrix of class numbers, negative where an annotator gave none."""
        item, annotator = np.nonzero(matrix >= 0)
        label = matrix[item, annotator].astype(np.int64)
        num_items, num_annotators = matrix.shape
        return cls(item, annotator, label, num_items, num_annotators, num_classes, num_labels)

    def __len__(self) -> int:
        return len(self.item)

    def matrix(self) -> Labels:
        """(N, M) class numbers, -1 where an annotator gave no answer."""
        matrix = np.full((self.num_items, self.num_annotators), -1)
        matrix[self.item, self.annotator] = self.label
        return matrix

    def take(self, items: Labels) -> Answers:
        """The answers to some items, given by their numbers in ascending order, which are numbered anew."""
        place = np.full(self.num_items, -1)
        place[items] = np.arange(len(items))
        kept = place[self.item] >= 0
        parts = (place[self.item[kept]], self.annotator[kept], self.label[kept])
        return Answers(*parts, len(items), self.num_annotators, self.num_classes, self.num_labels)

    def per_item(self, values: Array) -> Array:
        """Sum of (A, K) values over the answers of each item, (N, K)."""
        return self._item_sums @ values

    def per_answer(self, values: Array) -> Array:
        """Sum of (A, C) values over the equal answers of each annotator, (M, R, C)."""
        return (self._answer_sums @ values).reshape(self.num_annotators, self.num_labels, -1)

    @cached_property
    def answers_of_items(self) -> Array:
        """(N,) numbers of answers."""
        return np.bincount(self.item, minlength=self.num_items).astype(np.float64)

    @cached_property
    def _item_sums(self) -> sparse.csr_array:
        return _indicator(self.item, self.num_items)

    @cached_property
    def _answer_sums(self) -> sparse.csr_array:
        return _indicator(self.annotator * self.num_labels + self.label, self.num_annotators * self.num_labels)


def _indicator(rows: Labels, num_rows: int) -> sparse.csr_array:
    """The (num_rows, A) matrix that sums the values of answers that belong to one row."""
    columns = np.arange(len(rows))
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(num_rows, len(rows)))
