"""Answers of annotators to items, with sums over the answers of an item and of an annotator."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        source: (M,) number of the source of each annotator's answers; None if all are independent. Equal answers to one
            item by annotators with one source, who copy each other, are evidence of a single answer.
    """

    item: Labels
    annotator: Labels
    label: Labels
    num_items: int
    num_annotators: int
    num_classes: int
    num_labels: int = 0
    source: Labels | None = None

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
        return Answers(*parts, len(items), self.num_annotators, self.num_classes, self.num_labels, self.source)

    def joined(self, first: int, second: int) -> Answers:
        """The same answers, with one source for two annotators and for those who share the source of either."""
        source = np.arange(self.num_annotators) if self.source is None else self.source
        return replace(self, source=np.where(source == source[second], source[first], source))

    def per_item(self, values: Array) -> Array:
        """Sum of (A, K) values over the answers of each item, (N, K)."""
        return self._item_sums @ values

    def counted_once(self, values: Array) -> Array:
        """(A, K) values divided by the number of the answers that are copies of each other."""
        return values if self._copies is None else self._copies[1] @ values

    def evidence(self, values: Array) -> Array:
        """Sum of (A, K) values over the answers of each item, (N, K), in which those of copies count as their mean."""
        return self.per_item(self.counted_once(values))

    def evidence_of_others(self, values: Array) -> Array:
        """The same sum, (A, K), without each answer itself and its copies."""
        values = self.counted_once(values)
        own = values if self._copies is None else self._copies[0] @ values
        return self.per_item(values)[self.item] - own

    def per_answer(self, values: Array) -> Array:
        """Sum of (A, C) values over the equal answers of each annotator, (M, R, C)."""
        return (self._answer_sums @ values).reshape(self.num_annotators, self.num_labels, -1)

    @cached_property
    def answers_of_items(self) -> Array:
        """(N,) numbers of answers."""
        return np.bincount(self.item, minlength=self.num_items).astype(np.float64)

    @cached_property
    def _copies(self) -> tuple[sparse.csr_array, sparse.csr_array] | None:
        """Matrices (A, A) that sum over an answer and its copies, and that divide by their number."""
        if self.source is None:
            return None
        keys = np.stack([self.item, self.source[self.annotator], self.label])
        _, group, size = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        sums = _indicator(group.ravel(), len(size))
        return sparse.csr_array(sums.T @ sums), sparse.diags_array(1 / size[group.ravel()]).tocsr()

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
