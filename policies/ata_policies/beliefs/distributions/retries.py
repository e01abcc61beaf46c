"""Which workers are tried again where no round waits for them: those long out of use may have changed. Ours."""

import math

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel, phase
from ata_policies.beliefs.distributions.bins import DistributionBelief

_IDLE = 100.0  # rounds without news after which a worker is out of use
_SHARE = 0.01  # the share of a round's cost that these tries may have
_YOUNG = 400.0  # the rounds since everything last began anew after which the share falls


def to_try_again(belief: DistributionBelief, price: float) -> Mask:
    """Which workers should be tried again in a round that does not wait for them, (E, n).

    Such workers have been out of use for at least 100 rounds. Without a price all of them are tried. At a price p a
    round with m workers costs 1 + p m. So, with k rounds since everything last began anew,

        0.01 sqrt(400 / max(k, 400)) (m + 1 / p)

    workers a round, those that have been out of use longest, cost 1 % of a round at first, and less and less later.

    >>> seen = DistributionBelief.empty(1, 3).observe(np.array([[0, 1]]), np.array([[1.0, 5.0]]), np.zeros((1, 3)))
    >>> for _ in range(150):
    ...     seen = seen.observe(np.array([[0]]), np.array([[1.0]]), np.zeros((1, 3)))
    >>> to_try_again(seen, price=0.0)
    array([[False,  True, False]])
    """
    idle = belief.idle()
    candidates: Mask = (idle >= _IDLE) & (idle < np.inf)
    if price == 0.0 or not candidates.any():
        return candidates
    rounds, team = np.maximum(belief.since, 1.0), (idle < 1.0).sum(axis=1)
    number = falling_due(team + 1.0 / price, _shares(rounds), _shares(rounds - 1.0))
    return np.asarray(first_of(np.where(candidates, -idle, np.inf), number))


def falling_due(rate: Floats, now: Floats, before: Floats) -> Ints:
    """How many whole units fall due between the times ``before`` and ``now`` at a rate, elementwise."""
    return np.asarray(np.floor(rate * now) - np.floor(rate * before), np.int64)


@phase
def _smallest(values: Floats, place: int) -> float:
    """The value at a place of the ascending order, by Hoare's selection, as np.partition takes seconds to compile."""
    low, high = 0, len(values) - 1
    while low < high:  # each pass leaves a shorter part, since the pivot, a number, stops both scans
        i, j, pivot = low, high, values[(low + high) // 2]
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        low, high = low if place <= j else i, high if place >= i else j
    return float(values[place])


@kernel("(n),()->(n)")
def first_of(scores: Floats, number: Ints, out: Mask) -> None:
    """Which workers have the least finite scores (..., n), at most ``number`` (...,); of equal ones the first."""
    finite, size = np.empty(len(scores)), 0
    for i in range(len(scores)):
        out[i] = False
        if scores[i] < math.inf:
            finite[size] = scores[i]
            size += 1
    most = min(number[0], size)
    if most <= 0:
        return
    last = _smallest(finite[:size], most - 1)
    for i in range(len(scores)):
        out[i] = scores[i] < last
        most -= out[i]
    for i in range(len(scores)):
        if scores[i] == last and most > 0:
            out[i] = True
            most -= 1


def _shares(rounds: Floats) -> Floats:  # the sum of the shares of all rounds up to this one, elementwise
    late = np.sqrt(_YOUNG * np.maximum(rounds, _YOUNG)) - _YOUNG
    return np.asarray(_SHARE * (np.minimum(rounds, _YOUNG) + 2.0 * late))
