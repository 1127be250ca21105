"""T from neighbours: examples that are close to each other share a clean label.

If an example and its two nearest neighbours have the same clean class (HOC; Zhu, Song and Liu, ICML 2021), their three
noisy labels are independent draws from one column of T. With class priors p, the frequencies of labels, pairs and
triples are then

    c1[i] = sum_k p_k T[i,k]    c2[i,j] = sum_k p_k T[i,k] T[j,k]
    c3[i,j,l] = sum_k p_k T[i,k] T[j,k] T[l,k]

and fitting (p, T) to the observed frequencies requires neither anchor points nor posteriors.

Deviations from the authors' code: squared norms and L-BFGS instead of norms and Adam; neighbours are searched in one
random partition of all rows instead of 50 overlapping samples; the columns are permuted afterwards.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from volmin._typing import Array, Labels, Numbers
from volmin.exceptions import InputError
from volmin.validation import as_matrix, validate_labels

MOST_CLASSES = 200
"""Largest number of classes; beyond it the table of triples would not fit in memory and be almost empty."""

DIAGONAL_STARTS = (6.0, 3.0)
"""Log-odds of a correct label at the starts of the fit, low and high noise; the better fit is kept."""


def clusterability(
    features: Numbers,
    labels: Numbers,
    num_classes: int | None = None,
    *,
    block_rows: int = 15_000,
    random_state: int = 0,
) -> Array:
    """T from the noisy labels of neighbouring examples.

    Args:
        features: (N, D) representation in which neighbours (by cosine distance) share their clean label, such as the
            penultimate layer of a network.
        labels: (N,) noisy labels in ``0 .. C-1``.
        num_classes: Number of classes C; one more than the largest label by default.
        block_rows: Number of randomly chosen rows among which neighbours are searched; the cost is
            ``N * block_rows``.
        random_state: Seed of the partition into blocks.

    Returns:
        (C, C) matrix ``T[i, j] = P(noisy = i | clean = j)``.
    """
    X = as_matrix(features)
    if X.ndim != 2 or not np.isfinite(X).all():
        raise InputError(f"features must be a finite (N, D) matrix, but has shape {X.shape} or contains NaN.")
    if len(X) < max(3, num_classes or 0):
        raise InputError(f"features has {len(X)} rows; HOC needs at least 3, and one per class.")
    y = validate_labels(labels, len(X), MOST_CLASSES if num_classes is None else num_classes)
    num_classes = int(y.max()) + 1 if num_classes is None else num_classes
    if not 2 <= num_classes <= min(MOST_CLASSES, len(X)):
        limit = min(MOST_CLASSES, len(X))
        raise InputError(f"num_classes must lie in 2..{limit} for HOC with {len(X)} rows, but is {num_classes}.")
    triples = y[neighbour_triples(X, block_rows, random_state)]
    return solve_consensus(*consensus(triples, num_classes))[1]


def neighbour_triples(features: Array, block_rows: int, random_state: int) -> Labels:
    """(N, 3) row indices: each row and the two *other* rows closest to it by cosine distance."""
    # scikit-learn is slow to import and not needed by the other estimators.
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    unit = normalize(features)  # on the unit sphere, Euclidean and cosine distance have the same order
    order = np.random.default_rng(random_state).permutation(len(unit))
    blocks = np.array_split(order, -(-len(order) // max(block_rows, 3)))
    triples = []
    for block in blocks:
        search = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(unit[block])
        neighbours = search.kneighbors(return_distance=False)
        triples.append(np.column_stack([block, block[neighbours]]))
    return np.concatenate(triples)


def consensus(triples: Labels, num_classes: int) -> tuple[Array, Array, Array]:
    """Frequencies of single labels (C,), pairs (C, C) and triples (C, C, C) in (N, 3) label triples."""
    shape = (num_classes,) * 3
    flat = np.ravel_multi_index(tuple(triples.T), shape)
    c3 = np.bincount(flat, minlength=num_classes**3).reshape(shape) / len(triples)
    c2 = c3.sum(axis=2)
    return c2.sum(axis=1), c2, c3


def solve_consensus(c1: Array, c2: Array, c3: Array) -> tuple[Array, Array]:
    """The priors (C,) and T (C, C) whose label, pair and triple frequencies are closest to the given ones."""
    C = len(c1)
    # The model's frequencies are symmetric, so the asymmetric part of the given ones only adds a constant.
    pairs = np.mean([c2, c2.T], axis=0)
    triples = np.mean([c3.transpose(axes) for axes in permutations(range(3))], axis=0)
    starts = [np.concatenate([np.zeros(C), (level * np.eye(C)).ravel()]) for level in DIAGONAL_STARTS]
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-9}
    minimize = scipy.optimize.minimize  # imported before the limit, which applies to loaded libraries only
    with threadpool_limits(1, "blas"):  # for matrices this small, synchronising threads costs more than it saves
        fits = [minimize(_misfit, at, (c1, pairs, triples), "L-BFGS-B", jac=True, options=options) for at in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return in_order(*_unpack(best.x, C))


def in_order(priors: Array, T: Array) -> tuple[Array, Array]:
    """The same solution with its clean classes permuted to maximise the trace of T.

    Label frequencies do not determine which column belongs to which class.
    """
    _, columns = scipy.optimize.linear_sum_assignment(T, maximize=True)
    return priors[columns], T[:, columns]


def _unpack(theta: Array, num_classes: int) -> tuple[Array, Array]:
    return _softmax(theta[:num_classes]), _softmax(theta[num_classes:].reshape(num_classes, num_classes))


def _softmax(values: Array) -> Array:
    exponentials = np.exp(values - values.max(axis=0))
    return exponentials / exponentials.sum(axis=0)


def _misfit(theta: Array, c1: Array, c2: Array, c3: Array) -> tuple[float, Array]:
    """Squared distance of the model's frequencies from given symmetric ones, and its gradient."""
    C = len(c1)
    priors, T = _unpack(theta, C)
    products = (T[:, None, :] * T[None, :, :]).reshape(-1, C)
    of_classes = products * priors
    r1, r2, r3 = T @ priors - c1, of_classes.sum(axis=1).reshape(C, C) - c2, (of_classes @ T.T).reshape(c3.shape) - c3
    first, second, third = r1[:, None], r2 @ T, r3.reshape(C, -1) @ products
    d_priors = 2 * ((first + second + third) * T).sum(axis=0)
    d_T = 2 * priors * (first + 2 * second + 3 * third)
    gradient = [priors * (d_priors - d_priors @ priors), (T * (d_T - (d_T * T).sum(axis=0))).ravel()]
    # Without the factor, squares of the small triple frequencies would fall below the optimiser's tolerance.
    return C**2 * float((r1**2).sum() + (r2**2).sum() + (r3**2).sum()), C**2 * np.concatenate(gradient)
