"""How many workers take part in a race.

How many it needs, how many are worth their worker time, and how many more are worth a try.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Times, Within
from ata_policies.beliefs.distributions.bins import DistributionBelief

_LEAST_OF_TWO = 1.5  # fewer results than these, some of which may count in part, are one
_MOST_DEVIATIONS = 4.0  # standard deviations of a race of exponential task times, above its mean
_AVERAGED_RACES = 16.0  # races that the usual time is an average of
_DOUBTED_RACES = 8  # races in which all workers take part after one that took far longer
_ALL_WORKERS = 2**40  # more workers than there are


def workers_needed(belief: DistributionBelief, scores: Floats, share: float) -> int:
    """Return how many workers must race for the rest to give at most a share of all results.

    Workers of low scores come first; infinite scores are left out. With K_i results in the time
    S_i, workers that are left out give sum K_i / S_i results per unit of time, as far as one knows.
    What is not known, since some have had no time to show it, counts as in Good, "The population
    frequencies of species", Biometrika 1953: as much as workers with a single result give.

    In the example, any other worker may be as good after four results of four workers; after
    hundreds, a worker without one is not.

    Args:
        belief: What was learned, of a single row.
        scores: (n,) estimated times.
        share: Of all results, what the workers that are left out may give.

    Example:
        >>> results = np.array([[0, 1, 2, 3]]), np.full((1, 4), 3.0), np.full((1, 5), 0.5)
        >>> belief = DistributionBelief.empty(1, 5).observe(*results)
        >>> workers_needed(belief, np.arange(5.0), 0.01)
        5
        >>> for _ in range(99):
        ...     belief = belief.observe(*results)
        >>> workers_needed(belief, np.arange(5.0), 0.01)
        4
    """
    busy = belief.busy[0]
    counts = belief.counts[0]
    single_rate = np.divide(1.0, busy, out=np.zeros_like(busy), where=busy > 0.0)
    rates = counts * single_rate
    # Good's estimate: the rate of all that is not known yet is the rate of workers seen once
    unknown = single_rate[(counts > 0.0) & (counts < _LEAST_OF_TWO)].sum()
    order = np.argsort(scores, kind="stable")[: int((scores < np.inf).sum())]
    # [k]: the rate of all but the first k workers
    left_out = np.cumsum(rates[order][::-1])[::-1]
    dispensable = left_out + unknown <= share * rates.sum()
    if dispensable.any():
        return max(1, int(np.argmax(dispensable)))
    return len(order)


def worth_their_time(scores: Floats, price: float) -> int:
    """Return how many workers are worth their worker time, at least 1.

    If m workers give L results per unit of time together, B of them cost (1 + price m) B / L. One
    more of the rate r costs less if r > L / (m + 1 / price). Exact for exponential times and many
    results; ours.

    Args:
        scores: (n,) times per result.
        price: What a unit of worker time costs, above 0.

    Example:
        >>> worth_their_time(np.array([1.0, 1.0, 30.0, np.inf]), price=0.1)
        2
    """
    rates = np.sort(1.0 / np.maximum(scores, 1e-300))[::-1]
    faster_rates = np.cumsum(rates) - rates
    worse = rates * (np.arange(len(rates)) + 1.0 / price) <= faster_rates
    if worse.any():
        return max(1, int(np.argmax(worse)))
    return max(1, len(rates))


def tries(tried: Ints, racing: Ints, rounds_left: Floats | Ints, budget: int, price: float) -> Ints:
    """Return how many workers never tried should be tried in the coming round, (E,).

    The m members of the best race are together worth a round time T a round more than their worker
    time: with the rates of ``worth_their_time``, another of the rate r saves price T (r / u - 1), u
    = L / (m + 1 / price), and over the members that sums up to T. A worker never tried is as good
    as any of the k that were tried, so it brings T / (k + 1) in each of the H rounds left. A try
    takes as long as it must to tell a useful worker, 1 / u, or a round if that is longer. So it
    pays while

        k + 1 < H / price * min(1, B / (m + 1 / price)).

    Then k more are tried at once, and in the first round 2 B + 1 / price: so many workers have no
    more than the first results cost anyway. Without a price, all. Ours.

    Args:
        tried: (E,) the number k of workers tried so far.
        racing: (E,) the number m of workers in the race.
        rounds_left: (E,) the number H of rounds to come.
        budget: Results that end a round, B.
        price: What a unit of worker time costs.

    Example:
        >>> rounds = np.array([1000, 999, 80])
        >>> tries(np.array([0, 40, 900]), np.array([5, 5, 5]), rounds, budget=10, price=0.1)
        array([30, 40,  0])
    """
    if price == 0.0:
        return np.full_like(tried, _ALL_WORKERS)
    first_tries = 2 * budget + math.ceil(min(1.0 / price, _ALL_WORKERS))
    tries_per_round = np.minimum(1.0, budget / (racing + 1.0 / price))
    worth = tried + 1 < rounds_left / price * tries_per_round
    later_tries = np.where(worth, np.maximum(tried, first_tries), 0)
    return np.where(tried == 0, first_tries, later_tries)


class Doubt(NamedTuple):
    """Whether a race in which few workers take part is still right, for E rows. Ours.

    It is not where the last race took more than 1 + 4 / sqrt(B) times as long as usual: for
    exponential times the coefficient of variation is 1 / sqrt(B). Then the workers left out may
    have become the faster ones, and all race 8 times, so that what has changed is seen at once. The
    usual time is an average of the last 16 or so, each of which counts at most four times the
    usual.

    Example:
        >>> def race(seconds):
        ...     return np.array([[0, 0, 0, 0]]), np.full((1, 4), seconds / 4), np.zeros((1, 2))
        >>> doubt = Doubt(np.zeros(1), np.zeros(1, np.int64))
        >>> doubt = doubt.updated(*race(40.0)).updated(*race(100.0))
        >>> doubt.races, doubt.updated(*race(200.0)).races
        (array([0]), array([8]))
    """

    usual: Times
    """(E,) the usual time of a race; 0 before the first."""
    races: Annotated[Ints, Within(0, _DOUBTED_RACES)]
    """(E,) how often all workers are still to race."""

    def updated(self, worker: Ints, duration: Floats, elapsed: Floats) -> "Doubt":
        """Return the doubt after one more race.

        Args:
            worker: (E, B) the worker of each result, from the observation.
            duration: (E, B) the task time of each result.
            elapsed: (E, n) the time of each worker's cancelled task.
        """
        round_time: Floats = _round_time(worker, duration, elapsed)
        is_first = self.usual == 0.0
        far = ~is_first & (
            round_time > self.usual * (1.0 + _MOST_DEVIATIONS / math.sqrt(worker.shape[1]))
        )
        # One very long round must not become what is usual.
        counted = np.where(is_first, round_time, np.minimum(round_time, 4.0 * self.usual))
        usual = self.usual + (counted - self.usual) / np.where(is_first, 1.0, _AVERAGED_RACES)
        return Doubt(
            np.where(round_time > 0.0, usual, self.usual),
            np.where(far, _DOUBTED_RACES, np.maximum(self.races - 1, 0)),
        )


@kernel("(r),(r),(n)->()")
def _round_time(worker: Ints, duration: Floats, elapsed: Floats, out: Floats) -> None:
    """Compute the round time: the longest time for which a worker was busy."""
    busy = elapsed.copy()
    for r in range(len(worker)):
        if worker[r] >= 0:
            busy[worker[r]] += duration[r]
    out[0] = busy.max()
