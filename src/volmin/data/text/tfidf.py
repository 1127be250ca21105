"""TF-IDF of words and character sequences, with a reduction to a few dense features.

scikit-learn is imported where texts are encoded: importing it takes longer than many trainings, which have no texts.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

DENSE_FEATURES = 100
"""Number of dense features of a text."""

MOST_TERMS = 10_000
"""Largest number of words and word pairs, and of character sequences, the most frequent of each."""

MOST_FITTED = 20_000
"""Number of texts that vocabulary and reduction are fitted to, drawn at random from longer columns."""

LONGEST_TEXT = 5_000
"""Number of characters of a text that are read."""

_KINDS: dict[str, dict[str, Any]] = {
    "words": {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    # Sequences within words recognise inflected and misspelt ones.
    "sequences": {"analyzer": "char_wb", "ngram_range": (3, 4)},
}


@dataclass(frozen=True)
class Tfidf:
    """A fitted encoding of texts, in types that JSON can represent.

    Attributes:
        terms: Terms in order, by kind ("words", "sequences").
        weights: Inverse document frequency of each term, by kind.
        reduction: (terms, size) matrix from sparse to dense features, as base64 of float16.
        center: (size,) means of the dense features, which are subtracted.
        scale: Common factor of the dense features. A factor for each would amplify the ones that are mostly noise.
    """

    terms: dict[str, list[str]]
    weights: dict[str, list[float]]
    reduction: str
    center: list[float]
    scale: float

    @classmethod
    def fit(
        cls, texts: Sequence[str], *, kinds: Sequence[str] = ("words", "sequences"), size: int = DENSE_FEATURES
    ) -> Self:
        """Fit to distinct texts.

        Args:
            texts: (N,) distinct texts.
            kinds: Kinds of terms.
            size: Number of dense features, fewer if there are not so many texts or terms.
        """
        from sklearn.utils.extmath import randomized_svd

        generator = np.random.default_rng(0)
        if len(texts) > MOST_FITTED:
            texts = [texts[int(row)] for row in np.sort(generator.permutation(len(texts))[:MOST_FITTED])]
        shortened = [text[:LONGEST_TEXT] for text in texts]
        terms, weights = {}, {}
        for kind in kinds:
            vectorizer = _vectorizer(kind, min_df=2 if len(texts) >= 20 else 1, max_features=MOST_TERMS)
            try:
                vectorizer.fit(shortened)
            except ValueError:  # no term is frequent enough
                continue
            terms[kind] = vectorizer.get_feature_names_out().tolist()
            weights[kind] = [round(float(weight), 4) for weight in vectorizer.idf_]
        bare = cls(terms, weights, "", [], 1.0)
        x = bare.sparse(texts)
        size = min(size, bare.num_terms - 1, len(texts) - 1)
        if size < 1:
            return bare
        _, _, components = randomized_svd(x, size, n_iter=3, random_state=0)  # pyright: ignore[reportArgumentType]
        reduction = components.T.astype(np.float16)
        dense = np.asarray(x @ reduction.astype(np.float32))
        center = dense.mean(axis=0)
        spread = float(np.sqrt(np.mean((dense - center) ** 2)))
        coded = base64.b64encode(np.ascontiguousarray(reduction).tobytes()).decode()
        return cls(terms, weights, coded, [float(mean) for mean in center], 1 / spread if spread > 0 else 1.0)

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        known = set(self.terms) == set(self.weights) and set(self.terms) <= set(_KINDS)
        for kind, terms in self.terms.items() if known else ():
            known &= len(set(terms)) == len(terms) == len(self.weights[kind]) and all(isinstance(t, str) for t in terms)
            known &= all(type(weight) in (int, float) for weight in self.weights[kind])
        known &= all(type(number) in (int, float) for number in (*self.center, self.scale))
        if not known or len(base64.b64decode(self.reduction)) != 2 * self.num_terms * self.size:
            raise TypeError("the terms of a text do not fit their weights")

    @property
    def num_terms(self) -> int:
        """Number of sparse features."""
        return sum(len(terms) for terms in self.terms.values())

    @property
    def size(self) -> int:
        """Number of dense features."""
        return len(self.center)

    def sparse(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(N, terms) TF-IDF weights; rows have norm one."""
        shortened = [text[:LONGEST_TEXT] for text in texts]
        parts = []
        for kind, terms in self.terms.items():
            vectorizer = _vectorizer(kind, vocabulary={term: place for place, term in enumerate(terms)})
            vectorizer.idf_ = np.array(self.weights[kind])
            parts.append(vectorizer.transform(shortened) / np.sqrt(len(self.terms)))
        return sparse.csr_matrix(sparse.hstack(parts) if parts else (len(texts), 0), dtype=np.float32)

    def dense(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, size) dense features."""
        return ((self.sparse(texts) @ self._matrix() - np.array(self.center)) * self.scale).astype(np.float32)

    def _matrix(self) -> NDArray[np.float32]:
        content = np.frombuffer(base64.b64decode(self.reduction), np.float16)
        return content.reshape(self.num_terms, self.size).astype(np.float32)


def _vectorizer(kind: str, **settings: Any) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    chosen: dict[str, Any] = {**_KINDS[kind], **settings, "sublinear_tf": True, "dtype": np.float32}
    return TfidfVectorizer(**chosen)
