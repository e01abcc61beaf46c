"""How many workers a race needs, how many are worth their worker time, and how many more are worth a try."""

from __future__ import annotations

import math

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_policies.beliefs.distributions.bins import DistributionBelief


def needed(belief: DistributionBelief, scores: Floats, share: float) -> int:
    """How many workers of a single row must race for the rest to give at most this share of all results.

    Those of low scores (n,) come first; infinite scores are left out. With K_i results in the time S_i, workers that
    are left out give sum K_i / S_i results per unit of time, as far as one knows. What is not known, since some have
    had no time to show it, counts as in Good, "The population frequencies of species", Biometrika 1953: as much as
    workers with a single result give.

    After four results of four workers, any other worker may be as good; after hundreds, a worker without one is not:

    >>> results = np.array([[0, 1, 2, 3]]), np.full((1, 4), 3.0), np.full((1, 5), 0.5)
    >>> seen = DistributionBelief.empty(1, 5).observe(*results)
    >>> needed(seen, np.arange(5.0), 0.01)
    5
    >>> for _ in range(99):
    ...     seen = seen.observe(*results)
    >>> needed(seen, np.arange(5.0), 0.01)
    4
    """
    spent, counts = belief.busy[0], belief.counts[0]
    each = np.divide(1.0, spent, out=np.zeros_like(spent), where=spent > 0.0)
    rates, unknown = counts * each, each[(counts > 0.0) & (counts < _SINGLE)].sum()
    order = np.argsort(scores, kind="stable")[: int((scores < np.inf).sum())]
    left_out = np.cumsum(rates[order][::-1])[::-1]
    few = left_out + unknown <= share * rates.sum()
    return max(1, int(np.argmax(few))) if few.any() else len(order)


_SINGLE = 1.5  # fewer results than these, some of which may count in part, are one


def worth_their_time(scores: Floats, price: float) -> int:
    """How many of the workers with these times per result, (n,), are worth their worker time, at least 1.

    If m workers give L results per unit of time together, B of them cost (1 + price m) B / L. One more of the rate r
    costs less if r > L / (m + 1 / price). Exact for exponential times and many results; ours.

    >>> worth_their_time(np.array([1.0, 1.0, 30.0, np.inf]), price=0.1)
    2
    """
    rates = np.sort(1.0 / np.maximum(scores, 1e-300))[::-1]
    before = np.cumsum(rates) - rates
    worse = rates * (np.arange(len(rates)) + 1.0 / price) <= before
    return max(1, int(np.argmax(worse)) if worse.any() else len(rates))


def tries(tried: Ints, racing: Ints, left: Floats | Ints, budget: int, price: float) -> Ints:
    """How many workers never tried to try in the coming round, (E,), where ``tried`` k of them were and m race.

    The m members of the best race are together worth a round time T a round more than their worker time: with the rates
    of ``worth_their_time``, another of the rate r saves price T (r / u - 1), u = L / (m + 1 / price), and over the
    members that sums up to T. A worker never tried is as good as any of the k, so in each of the H rounds that are
    ``left`` it brings T / (k + 1). A try takes as long as it must to tell a useful worker, 1 / u, or a round if that
    is longer. So it pays while

        k + 1 < H / price * min(1, B / (m + 1 / price)).

    Then k more are tried at once, and in the first round 2 B + 1 / price: so many workers have no more than the
    first results cost anyway. Without a price, all. Ours.

    >>> tries(np.array([0, 40, 900]), np.array([5, 5, 5]), np.array([1000, 999, 80]), budget=10, price=0.1)
    array([30, 40,  0])
    """
    everybody = 2**40
    if price == 0.0:
        return np.full_like(tried, everybody)
    first = 2 * budget + math.ceil(min(1.0 / price, everybody))
    worth = tried + 1 < left / price * np.minimum(1.0, budget / (racing + 1.0 / price))
    return np.where(tried == 0, first, np.where(worth, np.maximum(tried, first), 0))
