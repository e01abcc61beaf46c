"""The type of a scenario: a pool, its changes, and what a round needs and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ata_gym.changes import Change, Redraw, checked_changes
from ata_gym.pools import Pool, PoolDistribution
from ata_gym.pools.distributions import NEVER
from ata_gym.pools.validation import checked_costs
from ata_gym.simulation.task_times import longest_times
from ata_gym.utils.validation import non_negative, real, short, whole_number

_LARGEST = 1e37
"""The time and the cost of a round stay below this number, so that they fit in float32, which RL libraries use."""


class AtaConstants(NamedTuple):
    """The hyperparameters of ATA and ATA-Empirical that one version of the paper published; None: it did not."""

    alpha: float | None = None  # ATA's bound on the psi1 norms, in units of time
    eta: float | None = None  # ATA-Empirical's bound on psi1 norm / mean


class Published(NamedTuple):
    """What was published for a scenario, by the version of ATA that it belongs to.

    They need not be the psi1 norms of the pool (``Pool.psi1_norm``): X itself in the preprint, X - mean at ICML.
    """

    preprint: AtaConstants = AtaConstants()
    icml: AtaConstants = AtaConstants()

    @classmethod
    def from_data(cls, data: "Published | Mapping[str, Any]") -> "Published":
        """Make one from what ``to_data`` gives, also after JSON; ValueError for anything else, and values out of range.

        >>> Published.from_data({"preprint": {"alpha": 5916, "eta": 2}}).preprint
        AtaConstants(alpha=5916.0, eta=2.0)
        """
        try:
            given = data if isinstance(data, Published) else cls(**{k: AtaConstants(**v) for k, v in data.items()})
            named = [constants._asdict() for constants in given]
        except (AttributeError, TypeError):
            raise ValueError(
                f"published holds alpha and eta by version, which is {' or '.join(cls._fields)}, such as "
                f'{{"preprint": {{"alpha": 4.0, "eta": 2.0}}}}, not {short(data)}'
            ) from None
        checked = ({k: None if v is None else real(k, v) for k, v in constants.items()} for constants in named)
        return cls(*(AtaConstants(**constants) for constants in checked))

    def to_data(self) -> dict[str, Any]:
        """Plain data, by version."""
        return {version: constants._asdict() for version, constants in self._asdict().items()}


_NOTHING = Published()


@dataclass(frozen=True)
class Scenario:
    """The workers, how they change, what a round needs and what it costs, with or without a name.

    ValueError for values out of range, changes that do not fit the pool, times or a price so large that sums can
    overflow, and a trace that cannot fill one round.

    >>> Scenario({"family": "exponential", "scale": [1.0, 2.0]}, budget=3).pool.n
    2
    """

    pool: Pool
    """The workers, also as plain data (``from_data`` of the class). A ``PoolDistribution`` stands for its typical pool
    with the change ``Redraw``, which draws the workers anew in each episode."""
    budget: int  # results B that a round needs
    horizon: int | None = None  # rounds in an episode; None: no end
    changes: tuple[Change, ...] = ()  # from round to round, applied in this order; also as plain data
    price: float = 0.0  # what one unit of worker time costs in units of runtime
    unit_costs: tuple[float, ...] | None = None
    """What a unit of each worker's time counts for in worker time, (n,), such as its watts or its dollars an hour over
    those of a usual one; also as any sequence. None: 1, so that worker time is the time that all workers were busy."""
    name: str = ""
    published: Published = _NOTHING
    """Hyperparameters of ATA and ATA-Empirical that were published for it, also as plain data. Where there are none,
    these policies take them from the pool."""
    summary: str = ""  # what it is in a sentence
    source: str = ""  # where it was published, or that it is ours

    def __post_init__(self) -> None:
        drawn = as_distribution(self.pool)
        pool = Pool.from_data(self.pool) if drawn is None else drawn.typical()
        changes = checked_changes(self.changes, pool.n)
        if drawn is not None and not any(isinstance(change, Redraw) for change in changes):
            changes = (Redraw(drawn), *changes)
        checked = {
            "pool": pool, "budget": whole_number("budget", self.budget),
            "horizon": None if self.horizon is None else whole_number("horizon", self.horizon),
            "changes": changes, "price": non_negative("price", self.price),
            "published": Published.from_data(self.published),
        }  # fmt: skip
        if self.unit_costs is not None:
            checked["unit_costs"] = tuple(checked_costs(self.unit_costs, pool.n).tolist())
        vars(self).update(checked)
        self._check_sums()
        limit = pool.distributions.limit
        by_task = np.array([family == "trace-by-task" for family in pool.families])
        if (by_task & (limit < self.budget)).any():
            raise ValueError(
                f"the trace cannot fill one round: its shortest worker has {limit[by_task].min()} rows and a round may "
                f'ask one worker for {self.budget} tasks; use end="wrap" or a smaller budget'
            )

    def _check_sums(self) -> None:
        most = _LARGEST / (self.budget * self.pool.n * max(1.0, self.price) * max(1.0, *(self.unit_costs or (1.0,))))
        longest, cause = float(longest_times(self.catalogue.distributions).max()), "the pool"
        for change in (None, *self.changes):
            if change is not None:
                longest, cause = change.longest(longest), short(change)
            if not longest <= most:
                raise ValueError(
                    f"with {cause}, times of up to {longest:.3g} can arise, and with {self.pool.n} workers, a budget "
                    f"of {self.budget} and a price of {self.price:g} the sums overflow above {most:.3g}: use smaller "
                    "factors, a smaller price, or a larger unit of time"
                )

    @property
    def drawn(self) -> PoolDistribution | None:
        """How workers are drawn anew in each episode, where the pool is only a typical one; None: they are not."""
        return next((change.pools for change in self.changes if isinstance(change, Redraw)), None)

    @property
    def catalogue(self) -> Pool:
        """The distributions that workers can have: those of the pool, or those from which workers are drawn anew."""
        return self.pool if self.drawn is None else self.drawn.catalogue

    @property
    def ends(self) -> bool:
        """Whether an episode ends with the recorded times of the pool."""
        return bool(self.pool.distributions.limit.min() < NEVER)

    @property
    def faulty(self) -> bool:
        """Whether workers may be away or die."""
        return any(change.faulty for change in self.changes)

    @property
    def stationary(self) -> bool:
        """Whether the distributions of the task times are the same in all rounds."""
        return not self.changes and "trace-by-round" not in self.pool.families

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Scenario":
        """Make one from its fields as plain data, also after JSON; ValueError for other fields and illegal values.

        >>> Scenario.from_data({"pool": {"family": "exponential", "scale": [1.0, 2.0]}, "budget": 3}).pool.n
        2
        """
        known = cls.__dataclass_fields__
        if not {"pool", "budget"} <= data.keys() <= known.keys():
            raise ValueError(
                f"the data of a scenario hold {', '.join(known)}, at least pool and budget, not {short(data)}"
            )
        return cls(**data)

    def to_data(self) -> dict[str, Any]:
        """What results depend on, as plain data: all fields but name, summary and source."""
        data = {"pool": self.pool.to_data(), "budget": self.budget, "horizon": self.horizon}
        data |= {"changes": [change.to_data() for change in self.changes], "price": self.price}
        data["published"] = self.published.to_data()
        return data | ({} if self.unit_costs is None else {"unit_costs": list(self.unit_costs)})


Maker = Callable[[str], Scenario]
"""Makes the scenario of a name."""
PoolData = Pool | PoolDistribution | Mapping[str, Any] | Sequence[Any]
"""A pool, a distribution of pools, or plain data from which ``from_data`` of either class makes one."""


def as_distribution(pool: PoolData) -> PoolDistribution | None:
    """The distribution from which the workers are drawn anew, also from its data; None for a pool, which is drawn once.

    ValueError for data of a distribution that are not legal.
    """
    if isinstance(pool, Mapping):
        return PoolDistribution.from_data(pool) if "n" in pool else None  # the data of a pool have no ``n``
    return pool if isinstance(pool, PoolDistribution) else None
