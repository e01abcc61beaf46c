"""The conditions of a round: what the changes make of the distributions of a pool."""

from typing import Any, NamedTuple, Self

import numpy as np

from ata_gym.pools import Pool
from ata_gym.pools.distributions import Distributions
from ata_gym.pools.families import CODES
from ata_gym.simulation.disturbances import Disturbances, undisturbed
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.trees import choose_rows


class Conditions(NamedTuple):
    """What E rows of n workers are like in one round, from its start to its end. At least one worker of a row lives."""

    distribution: Ints  # (E, n) the worker of the scenario's catalogue, by default its pool, whose distribution it has
    factor: Floats  # (E, n) factor of its task times
    common: Floats  # (E, n) standard normal noise that all tasks of a worker share in the round
    dies: Floats  # (E, n) when it dies, counted from the round's start; 0: it is away, inf: it lives
    signal: Floats  # (E, n, 2) its load of cpu and memory, from 0 to 1; 0 without the change ``Load``
    round: Ints  # (E,) the round, counted from 0
    weight: float = 0.0  # share of the common noise in the variance of a task's noise, made normal
    share: float = 0.0  # share of the tasks that are outliers
    low: float = 0.0  # the shortest outlier, in medians of its worker's distribution
    high: float = 0.0  # the longest one
    deadline: Floats | float = 0.0  # from then on tasks of dead workers are handed on; (E,) where rows may differ
    price: Floats | None = None  # (E,) what one unit of worker time costs in units of runtime; None: the scenario's
    present: Mask | None = None  # (E, n) places that hold a worker; None: all
    drawn: Floats | None = None  # (E, n) the mean that was drawn with a distribution, a part of its factor; None: none

    @classmethod
    def unchanged(cls, round: Ints, n: int) -> Self:
        """The conditions of n workers without changes in these rounds, shape (E,)."""
        rows = len(round)
        distribution = np.broadcast_to(np.arange(n), (rows, n))
        ones, never = np.ones((rows, n)), np.full((rows, n), np.inf)
        return cls(distribution, ones, np.zeros((rows, n)), never, np.zeros((rows, n, 2)), round)

    def row(self, e: int | slice) -> "Conditions":
        """The conditions of one row, without the row axis, or of some."""
        return Conditions._make(part[e] if isinstance(part, np.ndarray) else part for part in self)

    def times(self, factor: Floats) -> "Conditions":
        """The same, with task times multiplied by a factor, which broadcasts to (E, n)."""
        return self._replace(factor=self.factor * factor)

    def where(self, rows: Mask, other: "Conditions") -> "Conditions":
        """These conditions, but in some rows, shape (E,), the other ones."""
        fields: Any = zip(self._fields, self, other, strict=True)
        return self._replace(**{name: choose_rows(rows, new, old) for name, old, new in fields if old is not new})

    def with_survivor(self) -> "Conditions":
        """The same, but where all workers of a row would die, the last one (of equals the lowest) lives."""
        if np.isinf(self.dies).any(axis=1).all():
            return self
        dies = self.dies.copy()
        dies[np.arange(len(dies)), np.argmax(dies, axis=1)] = np.inf
        return self._replace(dies=dies)

    def distributions(self, distributions: Distributions) -> Distributions:
        """The distributions of the round from those of the catalogue, with a row axis."""
        alike = self.distribution.strides[0] == 0  # one row will do for rows that are alike
        distribution = self.distribution[:1] if alike else self.distribution
        own = {name: field[distribution] for name, field in distributions._asdict().items() if name != "table"}
        own |= {"shift": own["shift"] * self.factor, "scale": own["scale"] * self.factor}
        return distributions._replace(**own)

    def disturbances(self, median: Floats) -> Disturbances:
        """The disturbances of the round; ``median`` is the median task time of each distribution of the catalogue."""
        if not self.weight and not self.share:
            return Disturbances(undisturbed(self.factor.shape[1]).noise, self.dies, self.deadline)
        noise = np.empty((*self.factor.shape, 5))
        usual = median[self.distribution] * self.factor
        noise[..., 0] = self.share
        noise[..., 1], noise[..., 2] = self.low * usual, self.high * usual
        noise[..., 3], noise[..., 4] = (1 - self.weight) ** 0.5, self.weight**0.5 * self.common
        return Disturbances(noise, self.dies, self.deadline)

    def means(self, pool: Pool) -> Floats:
        """Exact mean task time of each worker in the round, shape (E, n), of tasks that are run to their end.

        It is infinite for a worker that is away from the start. For a trace that is replayed by round it is the
        recorded time of the round; a trace replayed by task has the mean of its record.
        """
        usual = (1 - self.share) * pool.mean_in(self.round)
        if self.share:
            usual += self.share * (self.low + self.high) / 2 * pool.median()
        return np.where(self.dies == 0.0, np.inf, np.take_along_axis(usual, self.distribution, axis=-1) * self.factor)

    def pool(self, pool: Pool) -> Pool:
        """The pool whose task times have the distributions of the round, for oracles.

        ``pool`` is the scenario's catalogue. These conditions must be of one row, as those of a single env, or
        ``row(e)`` of many; ValueError for those of many rows, and for outliers, which no family has. The pool is
        without deaths, and without shared noise, which leaves the distributions as they are. A trace that is replayed
        by round has one recorded time, that of the round.
        """
        if self.distribution.ndim != 1:
            raise ValueError("the pool of a round is that of one row: use conditions.row(e)")
        if self.share:
            raise ValueError("no family has outliers, so there is no pool of this round")
        plain = pool.to_data()
        for i in np.flatnonzero(pool.distributions.family == CODES["trace-by-round"]):
            plain["times"][i] = [plain["times"][i][self.round % pool.distributions.length[i]]]
        data = {key: [column[i] for i in self.distribution] for key, column in plain.items()}
        for key in ("shift", "scale"):
            data[key] = data[key] * self.factor
        return Pool(**data)
