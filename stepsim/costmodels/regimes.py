"""A few regimes, each a sum of costs, of which the fastest counts: what fits protocols that switch with the size.

NCCL sends small messages with flags between the words (LL), larger ones with a flag every 128 bytes (LL128), and the
largest in plain chunks (Simple): each has a lower latency and a lower bandwidth than the next (NCCL documentation,
``NCCL_PROTO``). The library chooses what it takes to be the fastest.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PARTS = 6
"""The samples, in order of size, are cut into so many parts; the first guess of a regime is some of them in a row."""

_TIE = 1e-12
"""Sums of squared relative errors that differ by less are equal."""

_ROUNDS = 15
"""More have not changed any of the tables that are fitted here."""


def fastest(design: Array, regimes: Array) -> Array:
    """Seconds of each row of ``design`` (samples x terms) in the fastest of ``regimes`` (regimes x terms)."""
    return np.asarray((design @ regimes.T).min(axis=1))


def fit_regimes(design: Array, seconds: Array, order: Array, num_regimes: int) -> Array:
    """Weights of at most ``num_regimes`` regimes, none negative, that fit ``seconds`` with least relative error.

    ``design`` has the terms of each sample, shape (samples, terms); ``order`` is what the regimes part by at first.
    From each first guess samples go to their fastest regime, and these are fitted anew, as in Magnani and Boyd,
    "Convex piecewise-linear fitting" (Optimization and Engineering 10, 2009); the best of all is taken.
    """
    relative = design / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    relative = relative / scale
    rank = np.linalg.matrix_rank(relative)
    best, least = least_squares(relative)[None, :], np.inf
    for cuts in combinations(_cuts(order), num_regimes - 1):
        of_sample = np.searchsorted(np.array(cuts), order, side="right")
        for _ in range(_ROUNDS):
            parts = [of_sample == one for one in np.unique(of_sample)]
            if min(np.linalg.matrix_rank(relative[part]) for part in parts) < rank:
                break  # one size does not tell latency from bandwidth, nor one group steps from what is fixed
            regimes = np.array([least_squares(relative[part]) for part in parts])
            times = relative @ regimes.T
            error = float(np.mean((times.min(axis=1) - 1) ** 2))
            if error < least:
                best, least = regimes, error
            moved = times.argmin(axis=1)
            if (moved == of_sample).all():
                break
            of_sample = moved
    return np.asarray(best / scale)


def least_squares(relative: Array) -> Array:
    """Weights >= 0 with which the terms of each sample add up to 1 as closely as they can; shape (terms,).

    Zero for terms that no sample has.
    """
    scale = np.linalg.norm(relative, axis=0)
    used = np.flatnonzero(scale > 0)
    found = np.zeros(relative.shape[1])
    found[used] = _not_negative(relative[:, used] / scale[used]) / scale[used]
    return found


def _not_negative(terms: Array) -> Array:
    """The best fit on some of the terms that comes out positive: with so few terms, all choices can be tried.

    Where choices do equally well, as on samples of one size, fewer and later terms count: bytes rather than latency.
    """
    num_samples, num_terms = terms.shape
    best, least = np.zeros(num_terms), np.inf
    for size in range(num_terms, 0, -1):
        for some in combinations(reversed(range(num_terms)), size):
            weights, _, rank, _ = np.linalg.lstsq(terms[:, some], np.ones(num_samples), rcond=None)
            error = float(np.sum((terms[:, some] @ weights - 1) ** 2))
            if rank == size and (weights >= 0).all() and error < least - _TIE:
                best, least = np.zeros(num_terms), error
                best[list(some)] = weights
        if size == num_terms and least < np.inf:
            break  # no choice of fewer terms can do better
    return best


def _cuts(order: Array) -> list[float]:
    values = np.unique(order)
    return sorted({float(values[len(values) * part // _PARTS]) for part in range(1, _PARTS)})
