"""How many workers a race needs, how many are worth their worker time, and how many more are worth a try."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Times, Within
from ata_policies.beliefs.distributions.bins import DistributionBelief

_SINGLE = 1.5  # fewer results than these, some of which may count in part, are one
_FAR = 4.0  # standard deviations of a race of exponential task times, above its mean
_RACES = 16.0  # races that the usual time is an average of
_DOUBT = 8  # races in which all workers take part after one that took far longer
_EVERYBODY = 2**40  # more workers than there are


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
    if price == 0.0:
        return np.full_like(tried, _EVERYBODY)
    first = 2 * budget + math.ceil(min(1.0 / price, _EVERYBODY))
    worth = tried + 1 < left / price * np.minimum(1.0, budget / (racing + 1.0 / price))
    return np.where(tried == 0, first, np.where(worth, np.maximum(tried, first), 0))


class Doubt(NamedTuple):
    """Whether a race in which few workers take part is still right, for E rows. Ours.

    It is not where the last race took more than 1 + 4 / sqrt(B) times as long as usual: for exponential times the
    coefficient of variation is 1 / sqrt(B). Then the workers left out may have become the faster ones, and all race 8
    times, so that what has changed is seen at once. The usual time is an average of the last 16 or so, each of which
    counts at most four times the usual.

    >>> def race(seconds):
    ...     return np.array([[0, 0, 0, 0]]), np.full((1, 4), seconds / 4), np.zeros((1, 2))
    >>> doubt = Doubt(np.zeros(1), np.zeros(1, np.int64)).after(*race(40.0)).after(*race(100.0))
    >>> doubt.races, doubt.after(*race(200.0)).races
    (array([0]), array([8]))
    """

    usual: Times  # (E,) the usual time of a race; 0 before the first
    races: Annotated[Ints, Within(0, _DOUBT)]  # (E,) how often all workers are still to race

    def after(self, worker: Ints, duration: Floats, elapsed: Floats) -> "Doubt":
        """After one more race: ``worker`` and ``duration`` (E, B) and ``elapsed`` (E, n) of the observation."""
        took: Floats = _round_time(worker, duration, elapsed)
        first = self.usual == 0.0
        far = ~first & (took > self.usual * (1.0 + _FAR / math.sqrt(worker.shape[1])))
        counted = np.where(first, took, np.minimum(took, 4.0 * self.usual))
        usual = self.usual + (counted - self.usual) / np.where(first, 1.0, _RACES)
        return Doubt(np.where(took > 0.0, usual, self.usual), np.where(far, _DOUBT, np.maximum(self.races - 1, 0)))


@kernel("(r),(r),(n)->()")
def _round_time(worker: Ints, duration: Floats, elapsed: Floats, out: Floats) -> None:
    busy = elapsed.copy()
    for r in range(len(worker)):
        if worker[r] >= 0:
            busy[worker[r]] += duration[r]
    out[0] = busy.max()
