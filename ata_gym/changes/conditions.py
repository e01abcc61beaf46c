"""The conditions of a round: what the changes make of the distributions of a pool."""

from typing import Any, NamedTuple, Self

import numpy as np

from ata_gym.pools import Pool
from ata_gym.pools.distributions import Distributions
from ata_gym.pools.families import TRACE_BY_ROUND
from ata_gym.simulation.disturbances import NOISE, Disturbances, undisturbed
from ata_gym.simulation.task_times import task_times
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.trees import choose_rows


class Conditions(NamedTuple):
    """The state of E rows of n workers in one round, from its start to its end.

    At least one worker of a row lives.
    """

    distribution: Ints
    """The worker of the catalogue whose distribution each worker has, shape (E, n).

    The catalogue of a scenario is by default its pool.
    """
    factor: Floats
    """The factor of each worker's task times, shape (E, n)."""
    common: Floats
    """Standard normal noise that all tasks of a worker share in the round, shape (E, n)."""
    death_time: Floats
    """When each worker dies, counted from the round's start, shape (E, n).

    It is 0 for a worker that is away, and inf for one that lives.
    """
    signal: Floats
    """The load of each worker's cpu and memory, from 0 to 1, shape (E, n, 2).

    It is 0 without the change ``Load``.
    """
    round: Ints
    """The round, counted from 0, shape (E,)."""
    latency_factor: Floats
    """The factor of each worker's latency, shape (E, n)."""
    weight: float = 0.0
    """The share of the common noise in the variance of a task's noise, made normal."""
    share: float = 0.0
    """The share of the tasks that are outliers."""
    low: float = 0.0
    """The shortest outlier, in medians of its worker's distribution."""
    high: float = 0.0
    """The longest outlier, in medians of its worker's distribution."""
    deadline: Floats | float = 0.0
    """The time from which tasks of dead workers are handed on; (E,) where rows may differ."""
    price: Floats | None = None
    """The price of one unit of worker time in units of runtime, shape (E,).

    None means the scenario's price.
    """
    present: Mask | None = None
    """The places that hold a worker, shape (E, n); None means all."""
    drawn_mean: Floats | None = None
    """The mean that was drawn with each distribution, a part of ``factor``, shape (E, n).

    None means that no mean was drawn.
    """

    @classmethod
    def unchanged(cls, round: Ints, n: int) -> Self:
        """The conditions of n workers without changes in these rounds, shape (E,)."""
        rows = len(round)
        distribution = np.broadcast_to(np.arange(n), (rows, n))
        ones = np.ones((rows, n))
        death_time = np.full((rows, n), np.inf)
        signal = np.zeros((rows, n, 2))
        return cls(distribution, ones, np.zeros((rows, n)), death_time, signal, round, ones)

    def row(self, e: int | slice) -> "Conditions":
        """The conditions of one row, without the row axis, or of a slice of rows."""
        return Conditions._make(part[e] if isinstance(part, np.ndarray) else part for part in self)

    def scaled(self, factor: Floats) -> "Conditions":
        """The same, with task times multiplied by a factor that broadcasts to (E, n)."""
        return self._replace(factor=self.factor * factor)

    def with_rows(self, rows: Mask, other: "Conditions") -> "Conditions":
        """These conditions, with the other ones in some rows, shape (E,)."""
        fields: Any = zip(self._fields, self, other, strict=True)
        return self._replace(
            **{name: choose_rows(rows, new, old) for name, old, new in fields if old is not new},
        )

    def with_survivor(self) -> "Conditions":
        """The same, but one worker lives where all workers of a row would die.

        It is the worker that would die last, of equals the lowest.
        """
        if np.isinf(self.death_time).any(axis=1).all():
            return self
        death_time = self.death_time.copy()
        death_time[np.arange(len(death_time)), np.argmax(death_time, axis=1)] = np.inf
        return self._replace(death_time=death_time)

    def distributions(self, distributions: Distributions) -> Distributions:
        """The distributions of the round's task times, with a row axis.

        Args:
            distributions: The distributions of the catalogue.
        """
        return self._of_workers(distributions, self.factor)

    def latency(self, latency: Pool, keys: Keys) -> Floats:
        """The latency of each worker in the round, shape (E, n).

        It is the time of a task whose number is the round.

        Args:
            latency: The latencies of the catalogue.
            keys: The keys of their noise, shape (E,).
        """
        distributions = self._of_workers(latency.distributions, self.latency_factor)
        # Each worker's time is one of its own: the rows get an axis for them.
        row_fields = {
            name: field[:, None]
            for name, field in distributions._asdict().items()
            if name != "table"
        }
        round = self.round[:, None]
        workers = np.arange(self.factor.shape[1])
        distributions = distributions._replace(**row_fields)
        return task_times(distributions, keys[:, None], 0, round, workers, round)

    def _of_workers(self, distributions: Distributions, factor: Floats) -> Distributions:
        """Each worker's distribution in the catalogue, with times ``factor`` times as long."""
        # A broadcast array has a stride of 0: its rows are alike, and one row is enough.
        alike = self.distribution.strides[0] == 0
        if alike:
            distribution = self.distribution[:1]
        else:
            distribution = self.distribution
        row_fields = {
            name: field[distribution]
            for name, field in distributions._asdict().items()
            if name != "table"
        }
        row_fields |= {
            "shift": row_fields["shift"] * factor,
            "scale": row_fields["scale"] * factor,
        }
        return distributions._replace(**row_fields)

    def disturbances(self, median: Floats, latency: Floats) -> Disturbances:
        """The disturbances of the round.

        Args:
            median: The median task time of each distribution of the catalogue.
            latency: The latency of each worker, shape (E, n) or (n,).
        """
        if not self.weight and not self.share:
            noise = undisturbed(self.factor.shape[1]).noise
            return Disturbances(noise, self.death_time, self.deadline, latency)
        noise = np.empty((*self.factor.shape, len(NOISE)))
        median_time = median[self.distribution] * self.factor
        noise[..., NOISE.outlier_share] = self.share
        noise[..., NOISE.shortest_outlier] = self.low * median_time
        noise[..., NOISE.longest_outlier] = self.high * median_time
        # The squares of both weights add up to 1, so that the noise stays standard normal.
        noise[..., NOISE.task_weight] = (1 - self.weight) ** 0.5
        noise[..., NOISE.common] = self.weight**0.5 * self.common
        return Disturbances(noise, self.death_time, self.deadline, latency)

    def means(self, pool: Pool) -> Floats:
        """Exact mean time of each worker's tasks in the round, shape (E, n).

        It is the mean of tasks that are run to their end, and infinite for a worker that is away
        from the start. For a trace that is replayed by round it is the recorded time of the round.
        A trace replayed by task has the mean of its record.

        Args:
            pool: The scenario's catalogue.
        """
        mean_time = (1 - self.share) * pool.mean_in(self.round)
        if self.share:
            mean_time += self.share * (self.low + self.high) / 2 * pool.median()
        return np.where(
            self.death_time == 0.0,
            np.inf,
            np.take_along_axis(mean_time, self.distribution, axis=-1) * self.factor,
        )

    def mean_latency(self, pool: Pool) -> Floats:
        """Exact mean latency of each worker in the round, shape (E, n).

        It is 0 where the workers pay none. Where latencies are recorded, it is the recorded latency
        of the round.

        Args:
            pool: The scenario's catalogue.
        """
        if pool.latency is None:
            return np.zeros_like(self.factor)
        mean = pool.latency.mean_in(self.round)
        return np.asarray(
            np.take_along_axis(mean, self.distribution, axis=-1) * self.latency_factor
        )

    def pool(self, pool: Pool) -> Pool:
        """The pool whose task times have the distributions of the round, for oracles.

        These conditions must be of one row: the conditions of a single env, or ``row(e)`` of many
        rows. The pool is without deaths, and without shared noise, which leaves the distributions
        as they are. A trace that is replayed by round has only the recorded time of the round.

        Args:
            pool: The scenario's catalogue.

        Raises:
            ValueError: For conditions of many rows, and for outliers, which no family has.
        """
        if self.distribution.ndim != 1:
            raise ValueError(
                "the pool of a round needs the conditions of one row: use conditions.row(e)"
            )
        if self.share:
            raise ValueError("no family has outliers, so there is no pool of this round")
        data = self._data_of_workers(pool, self.factor)
        if pool.latency is not None:
            data["latency"] = self._data_of_workers(pool.latency, self.latency_factor)
        return Pool(**data)

    def _data_of_workers(self, pool: Pool, factor: Floats) -> dict[str, Any]:
        """The data of each worker's distribution, with times ``factor`` times as long."""
        plain = pool.to_data()
        plain.pop("latency", None)
        for i in np.flatnonzero(pool.distributions.family == TRACE_BY_ROUND):
            # Such a record has one time for this round.
            place = self.round % pool.distributions.length[i]
            plain["times"][i] = [plain["times"][i][place]]
        data: dict[str, Any] = {}
        for key, column in plain.items():
            data[key] = [column[i] for i in self.distribution]
        for key in ("shift", "scale"):
            data[key] = data[key] * factor
        return data
