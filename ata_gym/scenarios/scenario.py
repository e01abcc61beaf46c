"""The type of a scenario: a pool, its changes, and what a round needs and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ata_gym.changes import Change, Redraw, checked_changes
from ata_gym.changes.from_data import changes_latencies
from ata_gym.pools import Pool, PoolDistribution
from ata_gym.pools.distributions import NO_LIMIT
from ata_gym.pools.families import TRACE_BY_TASK
from ata_gym.pools.validation import checked_costs
from ata_gym.simulation.task_times import longest_times
from ata_gym.utils.validation import non_negative, real, short, whole_number

_LARGEST_SUM = 1e37
"""The limit of the time and of the cost of a round.

Numbers below it fit in float32, which RL libraries use.
"""


class AtaConstants(NamedTuple):
    """The hyperparameters of ATA and ATA-Empirical in one version of the paper.

    None: that version published no value.
    """

    alpha: float | None = None
    """ATA's bound alpha on the psi1 norms, in units of time."""
    eta: float | None = None
    """ATA-Empirical's bound eta on psi1 norm / mean, without a unit."""


class Published(NamedTuple):
    """What was published for a scenario, by the version of ATA that it belongs to.

    The constants need not be the psi1 norms of the pool (``Pool.psi1_norm``). The preprint bounds
    the norm of a task time X itself, and the ICML version the norm of X - mean.
    """

    preprint: AtaConstants = AtaConstants()
    icml: AtaConstants = AtaConstants()

    @classmethod
    def from_data(cls, data: "Published | Mapping[str, Any]") -> "Published":
        """Make one from what ``to_data`` gives, also after JSON.

        Raises:
            ValueError: For anything else, and for values out of range.

        Example:
            >>> Published.from_data({"preprint": {"alpha": 5916, "eta": 2}}).preprint
            AtaConstants(alpha=5916.0, eta=2.0)
        """
        try:
            if isinstance(data, Published):
                published = data
            else:
                published = cls(**{k: AtaConstants(**v) for k, v in data.items()})
            versions = [constants._asdict() for constants in published]
        except (AttributeError, TypeError):
            raise ValueError(
                f"published holds alpha and eta by version, which is {' or '.join(cls._fields)},"
                f' such as {{"preprint": {{"alpha": 4.0, "eta": 2.0}}}}, not {short(data)}',
            ) from None
        return cls(*(_checked_constants(constants) for constants in versions))

    def to_data(self) -> dict[str, Any]:
        """Plain data, by version."""
        return {version: constants._asdict() for version, constants in self._asdict().items()}


def _checked_constants(constants: Mapping[str, Any]) -> AtaConstants:
    numbers = {name: real(name, value) for name, value in constants.items() if value is not None}
    return AtaConstants(**numbers)


_UNPUBLISHED = Published()


@dataclass(frozen=True)
class Scenario:
    """The workers, how they change, what a round needs and what it costs.

    A scenario may have a name.

    Raises:
        ValueError: For values out of range, changes that do not fit the pool, times or a price so
            large that sums can overflow, and a trace that cannot fill one round.

    Example:
        >>> Scenario({"family": "exponential", "scale": [1.0, 2.0]}, budget=3).pool.n
        2
    """

    pool: Pool
    """The workers, also as plain data (``from_data`` of the class).

    A ``PoolDistribution`` stands for its typical pool with the change ``Redraw``, which draws the
    workers anew in each episode.
    """
    budget: int
    """The number B of results that a round needs."""
    horizon: int | None = None
    """The number of rounds in an episode; None: no end."""
    changes: tuple[Change, ...] = ()
    """How workers change from round to round, applied in this order; also as plain data."""
    price: float = 0.0
    """What one unit of worker time costs in units of runtime."""
    unit_costs: tuple[float, ...] | None = None
    """What a unit of each worker's time counts for in worker time, (n,), or any sequence.

    Such a cost is the watts of a worker, or its dollars an hour relative to a usual worker.
    None: 1, so that worker time is the time that all workers were busy.
    """
    name: str = ""
    """The name under which it is known; may be empty."""
    published: Published = _UNPUBLISHED
    """Hyperparameters of ATA and ATA-Empirical that were published for it, also as plain data.

    Where there are none, these policies take them from the pool.
    """
    summary: str = ""
    """What it is in a sentence."""
    source: str = ""
    """Where it was published, or that it is ours."""

    def __post_init__(self) -> None:
        # the data of a distribution of pools, or the distribution, end as a pool and a change
        distribution = as_distribution(self.pool)
        if distribution is None:
            pool = Pool.from_data(self.pool)
        else:
            pool = distribution.typical()
        changes = checked_changes(self.changes, pool.n)
        if distribution is not None and not any(isinstance(change, Redraw) for change in changes):
            changes = (Redraw(distribution), *changes)
        budget = whole_number("budget", self.budget)
        horizon = self.horizon
        if horizon is not None:
            horizon = whole_number("horizon", horizon)
        fields = {
            "pool": pool,
            "budget": budget,
            "horizon": horizon,
            "changes": changes,
            "price": non_negative("price", self.price),
            "published": Published.from_data(self.published),
        }
        if self.unit_costs is not None:
            fields["unit_costs"] = tuple(checked_costs(self.unit_costs, pool.n).tolist())
        # the dataclass is frozen: its fields are set past __setattr__
        vars(self).update(fields)
        if pool.latency is not None and any(isinstance(change, Redraw) for change in changes):
            raise ValueError(
                "workers that are drawn anew pay no latency: give latency=... with a fixed pool",
            )
        if pool.latency is None and changes_latencies(changes):
            raise ValueError(
                "Congestion makes latencies longer, and these workers pay none: give the pool a"
                " latency",
            )
        self._check_sums()
        limit = pool.distributions.limit
        by_task = pool.distributions.family == TRACE_BY_TASK
        if (by_task & (limit < self.budget)).any():
            raise ValueError(
                f"the trace cannot fill one round: its shortest worker has {limit[by_task].min()}"
                f" rows and a round may ask one worker for {self.budget} tasks; use"
                ' end="wrap" or a smaller budget',
            )

    def _check_sums(self) -> None:
        """Refuse times of which the sums over a round can exceed ``_LARGEST_SUM``."""
        # a task and a latency may take this long: the sum over a round and all workers then fits
        latency = self.pool.latency
        times_of_worker = self.budget + (latency is not None)
        limit = _LARGEST_SUM / (
            times_of_worker
            * self.pool.n
            * max(1.0, self.price)
            * max(1.0, *(self.unit_costs or (1.0,)))
        )
        longest = float(longest_times(self.catalogue.distributions).max())
        if latency is not None:
            longest = max(longest, float(longest_times(latency.distributions).max()))
        cause = "the pool"
        # the pool alone comes first, and then the changes, in the order in which they apply
        for change in (None, *self.changes):
            if change is not None:
                longest = change.longest_time(longest, self.budget)
                cause = short(change)
            if not longest <= limit:
                raise ValueError(
                    f"with {cause}, times of up to {longest:.3g} can arise, and with {self.pool.n}"
                    f" workers, a budget of {self.budget} and a price of {self.price:g} the sums"
                    f" overflow above {limit:.3g}: use smaller factors, a smaller price, or a"
                    " larger unit of time",
                )

    @property
    def pool_distribution(self) -> PoolDistribution | None:
        """The distribution from which workers are drawn anew in each episode, or None.

        Where there is one, the pool is only a typical one.
        """
        return next((change.pools for change in self.changes if isinstance(change, Redraw)), None)

    @property
    def catalogue(self) -> Pool:
        """The distributions that workers can have, as a pool.

        It is the pool of the scenario, or all distributions from which workers are drawn anew.
        """
        if self.pool_distribution is None:
            return self.pool
        return self.pool_distribution.catalogue

    @property
    def records_end(self) -> bool:
        """Whether an episode ends with the recorded times of the pool."""
        return bool(self.pool.distributions.limit.min() < NO_LIMIT)

    @property
    def faulty(self) -> bool:
        """Whether workers may be away or die."""
        return any(change.faulty for change in self.changes)

    @property
    def deadline(self) -> float | None:
        """The time of a round from which tasks of workers that are away are handed on.

        It is the latest of all changes, and None where no worker is ever away.
        """
        if not self.faulty:
            return None
        parts = [part for change in self.changes for part in change.parts]
        return max(getattr(part, "deadline", 0.0) for part in parts)

    @property
    def follows_load(self) -> bool:
        """Whether the workers depend on what was asked of them, and so on the policy."""
        return any(change.follows_load for change in self.changes)

    @property
    def needs_allocation(self) -> bool:
        """Whether task times depend on the allocation of the round itself."""
        return any(change.needs_allocation for change in self.changes)

    @property
    def stationary(self) -> bool:
        """Whether the distributions of task times and latencies are the same in all rounds."""
        families = self.pool.families
        if self.pool.latency is not None:
            families += self.pool.latency.families
        return not self.changes and "trace-by-round" not in families

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Scenario":
        """Make one from its fields as plain data, also after JSON.

        Raises:
            ValueError: For other fields and illegal values.

        Example:
            >>> pool = {"family": "exponential", "scale": [1.0, 2.0]}
            >>> Scenario.from_data({"pool": pool, "budget": 3}).pool.n
            2
        """
        fields = cls.__dataclass_fields__
        if not {"pool", "budget"} <= data.keys() <= fields.keys():
            raise ValueError(
                f"the data of a scenario hold {', '.join(fields)}, at least pool and budget, not"
                f" {short(data)}",
            )
        return cls(**data)

    def to_data(self) -> dict[str, Any]:
        """What results depend on, as plain data: all fields but name, summary and source."""
        data = {
            "pool": self.pool.to_data(),
            "budget": self.budget,
            "horizon": self.horizon,
            "changes": [change.to_data() for change in self.changes],
            "price": self.price,
            "published": self.published.to_data(),
        }
        if self.unit_costs is not None:
            data["unit_costs"] = list(self.unit_costs)
        return data


Maker = Callable[[str], Scenario]
"""A function that makes the scenario of a name."""
PoolData = Pool | PoolDistribution | Mapping[str, Any] | Sequence[Any]
"""A pool, a distribution of pools, or the plain data of either, as for its ``from_data``."""


def as_distribution(pool: PoolData) -> PoolDistribution | None:
    """The distribution of pools that ``pool`` is, or that its data describe.

    Returns:
        None for a pool, whose workers are drawn once.

    Raises:
        ValueError: For data of a distribution that are not legal.
    """
    if isinstance(pool, Mapping):
        # the data of a distribution have the key ``n``, and the data of a pool do not
        if "n" in pool:
            return PoolDistribution.from_data(pool)
        return None
    if isinstance(pool, PoolDistribution):
        return pool
    return None
