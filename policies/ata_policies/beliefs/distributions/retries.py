"""Which workers are tried again where no round waits for them.

Workers that were long out of use may have changed. Ours.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel, phase
from ata_policies.beliefs.distributions.bins import DistributionBelief

_IDLE_ROUNDS = 100.0
"""Rounds without news after which a worker is out of use."""
_SHARE_OF_COST = 0.01
"""The share of a round's cost that these tries may have."""
_YOUNG_ROUNDS = 400.0
"""The rounds since everything last began anew after which the share falls."""


def to_try_again(belief: DistributionBelief, price: float) -> Mask:
    """Return which workers should be tried again in a round that does not wait for them, (E, n).

    Such workers have been out of use for at least 100 rounds. Without a price all of them are
    tried. At a price p a round with m workers costs 1 + p m. So, with k rounds since everything
    last began anew,

        0.01 sqrt(400 / max(k, 400)) (m + 1 / p)

    workers a round cost 1 % of a round at first, and less and less later. The workers that have
    been out of use longest are tried first.

    Args:
        belief: What is known of the workers.
        price: The price p of one unit of worker time in units of runtime, at least 0.

    Example:
        >>> zeros = np.zeros((1, 3))
        >>> belief = DistributionBelief.empty(1, 3)
        >>> belief = belief.observe(np.array([[0, 1]]), np.array([[1.0, 5.0]]), zeros)
        >>> for _ in range(150):
        ...     belief = belief.observe(np.array([[0]]), np.array([[1.0]]), zeros)
        >>> to_try_again(belief, price=0.0)
        array([[False,  True, False]])
    """
    idle = belief.idle()
    candidates: Mask = (idle >= _IDLE_ROUNDS) & (idle < np.inf)
    if price == 0.0 or not candidates.any():
        return candidates
    rounds = np.maximum(belief.since, 1.0)
    team = (idle < 1.0).sum(axis=1)
    limit = falling_due(team + 1.0 / price, _shares(rounds), _shares(rounds - 1.0))
    return np.asarray(first_of(np.where(candidates, -idle, np.inf), limit))


def falling_due(rate: Floats, end: Floats, start: Floats) -> Ints:
    """Return how many whole units fall due from ``start`` to ``end``, elementwise.

    Args:
        rate: Units per unit of time.
        end: The later time.
        start: The earlier time.
    """
    return np.asarray(np.floor(rate * end) - np.floor(rate * start), np.int64)


@phase
def smallest(values: Floats, place: int) -> float:
    """Return the value at a place of the ascending order, by Hoare's selection.

    ``np.partition`` would take seconds to compile. The values change their order.
    """
    low = 0
    high = len(values) - 1
    # each pass leaves a shorter part, since the pivot, a number, stops both scans
    while low < high:
        i = low
        j = high
        pivot = values[(low + high) // 2]
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i = i + 1
                j = j - 1
        if not (place <= j):
            low = i
        if not (place >= i):
            high = j
    return float(values[place])


@kernel("(n),()->(n)")
def first_of(scores: Floats, number: Ints, out: Mask) -> None:
    """Find the workers with the least finite scores, at most ``number`` of them.

    Of workers with equal scores the first ones are taken.

    Args:
        scores: (n,) the scores.
        number: How many workers at most.
        out: (n,) which workers.
    """
    finite = np.empty(len(scores))
    size = 0
    for i in range(len(scores)):
        out[i] = False
        if scores[i] < math.inf:
            finite[size] = scores[i]
            size += 1
    remaining = min(number[0], size)
    if remaining <= 0:
        return
    threshold = smallest(finite[:size], remaining - 1)
    for i in range(len(scores)):
        out[i] = scores[i] < threshold
        remaining -= out[i]
    for i in range(len(scores)):
        if scores[i] == threshold and remaining > 0:
            out[i] = True
            remaining -= 1


def _shares(rounds: Floats) -> Floats:
    """Return the sum of the shares of all rounds up to this one, elementwise."""
    late = np.sqrt(_YOUNG_ROUNDS * np.maximum(rounds, _YOUNG_ROUNDS)) - _YOUNG_ROUNDS
    return np.asarray(_SHARE_OF_COST * (np.minimum(rounds, _YOUNG_ROUNDS) + 2.0 * late))
