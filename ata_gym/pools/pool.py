"""A pool: the workers and the distribution of their task times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools import validation as checks
from ata_gym.pools.distributions import NO_LIMIT, Distributions, Moments, medians, moments, offsets
from ata_gym.pools.families import FAMILIES, RECORDED, TRACE_BY_ROUND, TRACE_BY_TASK
from ata_gym.pools.psi1 import psi1_norms
from ata_gym.typing import Floats
from ata_gym.utils.validation import short

if TYPE_CHECKING:
    from scipy.stats.distributions import rv_frozen

_FIELDS = ("family", "shift", "scale", "shape", "times", "end", "latency")
"""The names of the arguments of `Pool`, and of the fields of its data."""


class Pool:
    """The workers and the distributions of their task times.

    A task of worker i takes ``shift + scale * Z``. Pools are immutable, compare and hash by
    content, and join with ``+``. The functions beside this class (`exponential`, `gamma`, ...) make
    pools from the usual parameters of each family.

    Args:
        family: A name, or one per worker: deterministic (Z = 1), exponential (Exp(1)), uniform
            (U[0, 1]), half-normal (abs N(0, 1)), gamma (Gamma(shape, 1)), log-normal (exp(shape
            N(0, 1))), weibull (Exp(1)^(1/shape)), pareto (U[0, 1]^(-1/shape)), trace-by-task and
            trace-by-round (a recorded time of the worker).
        shift: A number, or one per worker, in units of time, such that no task time is negative.
        scale: A positive number, or one per worker, in units of time.
        shape: A positive number, or one per worker.
        times: For traces, one sequence of recorded times per worker (None for a worker of another
            family).
        end: One word, or one per worker, for the end of a record: "wrap" (start over) or "truncate"
            (end the episode before a round that cannot be filled).
        latency: What a worker pays in a round before its first task of the round begins, such as
            the transfer of the model: numbers of at least 0, or a pool of as many workers (or its
            data) that has the distributions. By default there is none.

    Raises:
        ValueError: For an argument that is out of range, unknown, or of another length than the
            others.

    Example:
        >>> pool = Pool(["exponential", "gamma"], shift=[2, 0], scale=[2, 1], shape=[1, 4])
        >>> pool
        Pool(n=2, exponential, gamma, mean time 4)
        >>> pool.mean(), pool.sd()
        (array([4., 4.]), array([2., 2.]))
        >>> Pool("uniform", scale=[1, 2], latency=[0, 5]).latency.mean()
        array([0., 5.])
    """

    distributions: Distributions
    """The distributions of the task times as plain arrays, read-only."""
    latency: Pool | None
    """The distributions of the latencies, n workers; None where there is none.

    A share of a_i >= 1 tasks of worker i takes a latency and a_i task times. The latency is drawn
    for each worker and round. A worker without tasks pays none.
    """
    _norms: dict[bool, Floats]
    """The psi1 norms computed so far, by whether they are centred."""

    def __init__(
        self,
        family: str | Sequence[str],
        *,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        shape: ArrayLike = 1.0,
        times: Sequence[ArrayLike | None] | None = None,
        end: str | Sequence[str] = "wrap",
        latency: LatencyData | None = None,
    ) -> None:
        distributions = checks.distributions_of(
            family, shift=shift, scale=scale, shape=shape, times=times, end=end
        )
        self._fill(distributions, checked_latency(latency, len(distributions.family)))
        checks.check_distributions(self.distributions, self._moments)

    @classmethod
    def from_data(cls, data: Pool | Mapping[str, Any] | Sequence[Any]) -> Pool:
        """Make a pool from data.

        Args:
            data: A mapping of the arguments of `Pool`, as `to_data` gives, or a sequence of such
                mappings, whose pools are joined. A pool is returned as it is.

        Raises:
            ValueError: For anything else, and as for `Pool`.

        Example:
            >>> slow = {"family": "uniform", "scale": 6}
            >>> Pool.from_data([{"family": "exponential", "scale": [1, 2]}, slow])
            Pool(n=3, exponential, uniform, mean times 1 to 3)
        """
        if isinstance(data, Pool):
            return data
        if isinstance(data, Mapping):
            unknown = [key for key in data if key not in _FIELDS]
            if unknown or "family" not in data:
                if unknown:
                    problem = f"unknown {unknown}"
                else:
                    problem = "no family"
                raise ValueError(
                    f"a pool's data holds family, and maybe {', '.join(_FIELDS[1:])}; here:"
                    f" {problem}",
                )
            return cls(**data)
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            try:
                pools = [cls.from_data(part) for part in data]
            except RecursionError:
                raise ValueError(
                    "a pool's data cannot hold itself, nor be nested so deeply",
                ) from None
            if len(pools) == 1:
                return pools[0]
            return concatenate(pools)
        raise ValueError(
            f"a pool is made from a Pool, a mapping, or a sequence of them, got {short(data)}",
        )

    def to_data(self) -> dict[str, Any]:
        """The pool as plain lists, words and numbers.

        `from_data` makes an equal pool of them, also after JSON.

        Example:
            >>> data = Pool("uniform", shift=1, scale=[2, 4]).to_data()
            >>> data["family"], data["shift"], data["scale"], data["shape"]
            (['uniform', 'uniform'], [1.0, 1.0], [2.0, 4.0], [1.0, 1.0])
        """
        distributions = self.distributions
        data: dict[str, Any] = {
            "family": list(self.families),
            "shift": distributions.shift.tolist(),
            "scale": distributions.scale.tolist(),
            "shape": distributions.shape.tolist(),
        }
        recorded = np.isin(distributions.family, RECORDED)
        if recorded.any():
            times: list[list[float] | None] = [None] * self.n
            for i in np.flatnonzero(recorded).tolist():
                times[i] = self.record(i).tolist()
            ends = np.where(distributions.limit == NO_LIMIT, "wrap", "truncate")
            data["times"] = times
            data["end"] = ends.tolist()
        if self.latency is not None:
            data["latency"] = self.latency.to_data()
        return data

    def with_latency(self, latency: LatencyData | None) -> Pool:
        """The same workers with another latency.

        Args:
            latency: As for `Pool`.

        Raises:
            ValueError: As for `Pool`, and for workers that replay recorded times, which hold the
                latency that was paid when they were recorded.

        Example:
            >>> pool = Pool("exponential", scale=[1, 2])
            >>> slow_link = Pool("log-normal", scale=[5, 5], shape=0.5)
            >>> pool.with_latency(slow_link).latency.median()
            array([5., 5.])
        """
        recorded = np.isin(self.distributions.family, RECORDED)
        if latency is not None and recorded.any():
            raise ValueError(
                f"the recorded times of worker {int(np.argmax(recorded))} hold the latency that it"
                " paid when they were recorded; if it was recorded apart, give it beside the times:"
                " trace(times, latency=...)",
            )
        return from_distributions(self.distributions, checked_latency(latency, self.n))

    @property
    def n(self) -> int:
        """The number of workers."""
        return len(self.distributions.family)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The name of each worker's family, length n."""
        return tuple(FAMILIES[code].name for code in self.distributions.family)

    def mean(self) -> Floats:
        """Mean task time of each worker, shape (n,), inf where it is infinite.

        All times of a trace are equally likely.
        """
        return self._moments.mean.copy()

    def mean_in(self, round: NDArray[np.int64]) -> Floats:
        """Mean task time of each worker in some rounds, shape (..., n).

        Traces replayed by round have the recorded time of the round.

        Args:
            round: The rounds, counted from 0, shape (...).
        """
        mean = np.tile(self._moments.mean, (*round.shape, 1))
        distributions = self.distributions
        replayed = distributions.family == TRACE_BY_ROUND
        if replayed.any():
            place = distributions.record_start + round[..., None] % distributions.length
            time = distributions.shift + distributions.scale * distributions.table[place]
            mean[..., replayed] = time[..., replayed]
        return mean

    def sd(self) -> Floats:
        """Standard deviation of each worker's task time, shape (n,), inf where it is infinite."""
        return self._moments.sd.copy()

    def median(self) -> Floats:
        """Median task time of each worker, shape (n,)."""
        return medians(self.distributions)

    def psi1_norm(self, centred: bool = False) -> Floats:
        """The psi1 norm of each worker's task time, shape (n,), in units of time.

        It is ``inf{c > 0 : E exp(|Y| / c) <= 2}``, and inf for log-normal, pareto, and weibull
        times of shape < 1.

        Args:
            centred: By default Y is the task time X, as the preprint assumes. If true, Y is X minus
                its mean, as the ICML version assumes.

        Example:
            >>> Pool("exponential", scale=[1, 10]).psi1_norm().round(6)
            array([ 2., 20.])
        """
        if centred not in self._norms:
            self._norms[centred] = psi1_norms(self.distributions, self._moments, centred=centred)
        return self._norms[centred].copy()

    def standard(self, i: int) -> rv_frozen:
        """The distribution of ``Z`` of worker i in scipy.

        Raises:
            ValueError: For a deterministic worker and a trace.
        """
        return FAMILIES[int(self.distributions.family[i])].distribution(
            float(self.distributions.shape[i]),
        )

    def record(self, i: int) -> Floats:
        """The recorded times of worker i, shape (length,), read-only.

        Raises:
            ValueError: If the worker replays no trace.
        """
        family = FAMILIES[self.distributions.family[i]]
        if not family.trace:
            raise ValueError(f"worker {i} is {family.name} and replays no trace")
        first = self.distributions.record_start[i]
        return self.distributions.table[first : first + self.distributions.length[i]]

    def __add__(self, other: Pool) -> Pool:
        if isinstance(other, Pool):
            return concatenate([self, other])
        return NotImplemented

    def __len__(self) -> int:
        return self.n

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pool):
            return NotImplemented
        return self.latency == other.latency and all(
            map(np.array_equal, self.distributions, other.distributions)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        names = ", ".join(FAMILIES[code].name for code in np.unique(self.distributions.family))
        low = self._moments.mean.min()
        high = self._moments.mean.max()
        if low == high:
            times = f"mean time {low:.6g}"
        else:
            times = f"mean times {low:.6g} to {high:.6g}"
        if self.latency is not None:
            latencies = self.latency.mean()
            times += f", mean latencies {latencies.min():.6g} to {latencies.max():.6g}"
        return f"Pool(n={self.n}, {names}, {times})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"pools are immutable: make a new one instead of setting {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"pools are immutable: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return from_distributions, (self.distributions, self.latency)

    def _fill(self, distributions: Distributions, latency: Pool | None) -> None:
        for column in distributions:
            column.flags.writeable = False
        vars(self).update(distributions=distributions, latency=latency, _norms={})

    @cached_property
    def _moments(self) -> Moments:
        return moments(self.distributions)

    @cached_property
    def _hash(self) -> int:
        columns = tuple(column.tobytes() for column in self.distributions)
        return hash((columns, self.latency))


LatencyData: TypeAlias = ArrayLike | Pool | Mapping[str, Any]
"""Latencies: numbers, a pool that has their distributions, or the data of the pool."""


def concatenate(pools: Iterable[Pool]) -> Pool:
    """Join pools into one, with the workers in the order given.

    Where only some of them have a latency, the workers of the others have a latency of 0.

    Raises:
        ValueError: If there is no pool, or anything else among them.

    Example:
        >>> concatenate([Pool("exponential", scale=[1, 2]), Pool("uniform", scale=6)]).mean()
        array([1., 2., 3.])
    """
    parts = list(pools)
    if not parts or not all(isinstance(part, Pool) for part in parts):
        raise ValueError(f"concatenate takes at least one pool, and only pools, got {short(parts)}")
    joined = Distributions(
        *map(np.concatenate, zip(*(part.distributions for part in parts), strict=True)),
    )
    tables = [
        part.distributions.table
        for part in parts
        if np.isin(part.distributions.family, RECORDED).any()
    ]
    if tables:
        table = np.concatenate(tables)
    else:
        table = np.zeros(1)
    if any(part.latency is not None for part in parts):
        latency = concatenate([part.latency or _no_latency(part.n) for part in parts])
    else:
        latency = None
    return from_distributions(
        joined._replace(table=table, record_start=offsets(joined.family, joined.length)),
        latency,
    )


def checked_pool(pool: object) -> Pool:
    """Return the argument ``pool`` of a function.

    Raises:
        ValueError: If it is no Pool.
    """
    if not isinstance(pool, Pool):
        raise ValueError(  # noqa: TRY004
            f"pool must be a Pool, such as exponential([1, 2]) makes, not {short(pool)}",
        )
    return pool


def from_distributions(distributions: Distributions, latency: Pool | None = None) -> Pool:
    """Make a pool from distributions and latencies that are known to be valid, without checks."""
    pool = Pool.__new__(Pool)
    pool._fill(distributions, latency)
    return pool


def checked_latency(latency: LatencyData | None, n: int) -> Pool | None:
    """The latencies of n workers as a pool, which unlike other pools may have times of 0.

    Args:
        latency: Numbers, a pool that has their distributions, or what ``to_data`` gives of it; None
            means no latency.
        n: The number of workers.

    Raises:
        ValueError: For numbers that are negative, NaN or infinite, for another number of workers,
            and for a pool that has a latency itself, an infinite mean, or records that end.
    """
    if latency is None:
        return None
    if isinstance(latency, Pool):
        pool = latency
    elif isinstance(latency, Mapping):
        pool = _pool_of_latencies(latency)
    else:
        numbers = checks.numbers("latency", latency)
        if (numbers < 0).any():
            raise ValueError(
                "latency must be at least 0 (a time that a worker pays before its first task of a"
                f" round), got {short(latency)}",
            )
        pool = _pool_of_latencies({"family": "deterministic", "scale": numbers})
        if pool.n == 1:
            pool = concatenate([pool] * n)
    if pool.n != n:
        raise ValueError(
            f"latency must have one entry, or one per worker: {n}, and it has {pool.n}"
        )
    if pool.latency is not None:
        raise ValueError("latency has a latency itself: give its times as one distribution")
    if (pool.distributions.limit < NO_LIMIT).any():
        raise ValueError('the records of latency must start over at their end: use end="wrap"')
    if not np.isfinite(pool.mean()).all():
        raise ValueError(f"latency must have a finite mean, got {short(pool.mean().tolist())}")
    # there is one latency of a worker in a round
    family = pool.distributions.family
    by_round = np.where(family == TRACE_BY_TASK, TRACE_BY_ROUND, family)
    return from_distributions(pool.distributions._replace(family=by_round))


def _pool_of_latencies(data: Mapping[str, Any]) -> Pool:
    """The pool that these data describe, in which times may be 0."""
    unknown = [str(key) for key in data if key not in _FIELDS[:-1]]
    if unknown or "family" not in data:
        raise ValueError(
            f"the data of a latency hold family, and maybe {', '.join(_FIELDS[1:-1])}, not"
            f" {short(dict(data))}",
        )
    pool = from_distributions(checks.distributions_of(**data, zeros=True))
    checks.check_distributions(pool.distributions, pool._moments, zeros=True)
    return pool


def _no_latency(n: int) -> Pool:
    """The latencies of n workers that pay none."""
    return _pool_of_latencies({"family": "deterministic", "scale": np.zeros(n)})
