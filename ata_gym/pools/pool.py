"""A pool: the workers and the law of their task times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.changes import Change, Conditions, change_from_data
from ata_gym.pools import checks
from ata_gym.pools.families import CODES, FAMILIES, RECORDED
from ata_gym.pools.laws import NEVER, Laws, offsets
from ata_gym.pools.moments import Moments, medians, moments
from ata_gym.pools.norms import psi1_norms

if TYPE_CHECKING:
    from scipy.stats.distributions import rv_frozen

    from ata_gym.pools.families import FloatArray

__all__ = ["Laws", "Pool", "concatenate"]

_ENDS = {"wrap": 0, "truncate": 1}


class Pool:
    """The workers and the law of their task times: worker i takes ``shift + scale * Z`` for a task.

    Pools are immutable, compare and hash by content, and join with ``+``. The functions beside this class
    (`exponential`, `gamma`, ...) make pools from the parameters usual in each family.

    Parameters
    ----------
    family
        A name, or one per worker: deterministic (Z = 1), exponential (Exp(1)), uniform (U[0, 1]),
        half-normal (abs N(0, 1)), gamma (Gamma(shape, 1)), log-normal (exp(shape N(0, 1))),
        weibull (Exp(1)^(1/shape)), pareto (U[0, 1]^(-1/shape)), trace-by-task and trace-by-round (a recorded
        time of the worker).
    shift, scale, shape
        Numbers, or one per worker, broadcast to n workers. Scale and shape are positive; shifts are such
        that no time is negative.
    times
        For traces: one sequence of recorded times per worker (None for a worker of another family).
    end
        What the end of a record does: "wrap" (start over) or "truncate" (end the episode before a round that
        cannot be filled); one word, or one per worker.

    Raises
    ------
    ValueError
        For an unknown family, parameters out of range or of unequal lengths, and empty or bad records.

    Examples
    --------
    >>> pool = Pool(["exponential", "gamma"], shift=[2.0, 0.0], scale=[2.0, 1.0], shape=[1.0, 4.0])
    >>> pool
    Pool(n=2, exponential, gamma, mean time 4)
    >>> pool.mean(), pool.sd()
    (array([4., 4.]), array([2., 2.]))
    """

    __slots__ = ("_hash", "_moments", "_norms", "changes", "laws")

    laws: Laws
    """The laws as plain arrays, read-only."""
    changes: tuple[Change, ...]
    """How they change from round to round; see ``changing``. All that is said of a pool is said without them."""
    _moments: Moments
    _norms: dict[bool, FloatArray]
    _hash: int

    def __init__(
        self,
        family: str | Sequence[str],
        *,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        shape: ArrayLike = 1.0,
        times: Sequence[ArrayLike | None] | None = None,
        end: str | Sequence[str] = "wrap",
    ) -> None:
        columns: dict[str, NDArray[Any]] = {
            "family": checks.words("family", family, CODES),
            "shift": checks.numbers("shift", shift),
            "scale": checks.numbers("scale", scale, positive=True),
            "shape": checks.numbers("shape", shape, positive=True),
            "end": checks.words("end", end, _ENDS),
        }
        listed = None if times is None else checks.per_worker(times)
        n = checks.common_length(columns, None if listed is None else len(listed))
        # adding 0.0 copies, and turns -0.0 into 0.0: equal pools are equal byte by byte
        codes, shifts, scales, shapes, ends = (np.broadcast_to(column, n) + 0 for column in columns.values())
        recorded = np.isin(codes, RECORDED)
        records = checks.records([None] * n if listed is None else listed, recorded)
        length = np.array([max(1, len(record)) for record in records], dtype=np.int64)
        limit = np.where(recorded & (ends == _ENDS["truncate"]), length, NEVER)
        table = np.concatenate(records) if recorded.any() else np.zeros(1)
        self._fill(Laws(codes, shifts, scales, shapes, table, offsets(codes, length), length, limit))
        checks.laws(self.laws, self._moments)

    @classmethod
    def from_data(cls, data: Pool | Mapping[str, Any] | Sequence[Any]) -> Pool:
        """Make a pool from plain data: what `to_data` gives, or a sequence of such things, which are joined.

        The keys of a mapping are the arguments of `Pool`: family, shift, scale, shape, times, end; and changes, a list
        of what their `to_data` gives.

        Raises
        ------
        ValueError
            For anything else, unknown keys, and all that `Pool` refuses.

        Examples
        --------
        >>> Pool.from_data([{"family": "exponential", "scale": [1, 2]}, {"family": "uniform", "scale": 6}])
        Pool(n=3, exponential, uniform, mean times 1 to 3)
        """
        if isinstance(data, Pool):
            return data
        if isinstance(data, Mapping):
            if "changes" in data:
                rest = {key: value for key, value in data.items() if key != "changes"}
                return cls.from_data(rest).changing(*map(change_from_data, data["changes"]))
            known = ("family", "shift", "scale", "shape", "times", "end")
            unknown = [key for key in data if key not in known]
            if unknown or "family" not in data:
                wrong = f"unknown {unknown}" if unknown else "no family"
                raise ValueError(f"a pool's data holds family, and maybe {', '.join(known[1:])}; here: {wrong}")
            return cls(**data)
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            joined = [cls.from_data(part) for part in data]
            return joined[0] if len(joined) == 1 else concatenate(joined)
        raise ValueError(f"a pool is made from a Pool, a mapping, or a sequence of them, got {checks.short(data)}")

    def to_data(self) -> dict[str, Any]:
        """Plain lists, words and numbers from which `from_data` makes an equal pool, also by way of JSON.

        >>> Pool("uniform", shift=1, scale=[2, 4]).to_data()
        {'family': ['uniform', 'uniform'], 'shift': [1.0, 1.0], 'scale': [2.0, 4.0], 'shape': [1.0, 1.0]}
        """
        laws = self.laws
        data: dict[str, Any] = {
            "family": list(self.families),
            "shift": laws.shift.tolist(),
            "scale": laws.scale.tolist(),
            "shape": laws.shape.tolist(),
        }
        recorded = np.isin(laws.family, RECORDED)
        if recorded.any():
            data["times"] = [self.record(i).tolist() if recorded[i] else None for i in range(self.n)]
            data["end"] = ["wrap" if limit == NEVER else "truncate" for limit in laws.limit]
        if self.changes:
            data["changes"] = [change.to_data() for change in self.changes]
        return data

    def changing(self, *changes: Change) -> Pool:
        """Give the pool whose workers change from round to round, after the changes that this one has.

        They are applied in order: factors multiply, and the laws that a `Switch` deals out are those before it.

        Raises
        ------
        ValueError
            For something else than a change, one that does not fit the pool, and a second one of a kind of which there
            can be one only (`Correlated`, `Outliers`, `Load`).

        Examples
        --------
        >>> from ata_gym.changes import OnOff
        >>> Pool("exponential", scale=[1, 2]).changing(OnOff(factor=5, starts=0.01, ends=0.1)).changes
        (OnOff(factor=5.0, starts=0.01, ends=0.1),)
        """
        both = self.changes + changes
        if not all(isinstance(change, Change) for change in both):
            raise ValueError(f"a pool is changed by changes of ata_gym.changes, got {checks.short(changes)}")
        for change in both:
            change.fit(self.n)
            if change.single and sum(type(other) is type(change) for other in both) > 1:
                raise ValueError(f"a pool can have one {type(change).__name__} only")
        return from_laws(self.laws, both)

    def under(self, conditions: Conditions) -> Pool:
        """Give the pool that this one is in a round, without changes: for oracles.

        Parameters
        ----------
        conditions
            Of one row, as `env.unwrapped.conditions()` of a single env, or ``conditions.row(e)`` of many. Noise that is
            shared leaves the laws as they are, and who dies is not told. A trace that is replayed by round has the
            recorded time of the round.

        Raises
        ------
        ValueError
            For conditions of many rows, and under outliers, which no family has.
        """
        if conditions.law.ndim != 1:
            raise ValueError("the pool of a round is that of one row: use conditions.row(e)")
        if conditions.share:
            raise ValueError("no family has outliers, so there is no pool of this round")
        plain = from_laws(self.laws).to_data()
        for i in np.flatnonzero(self.laws.family == CODES["trace-by-round"]):
            plain["times"][i] = [plain["times"][i][conditions.round % self.laws.length[i]]]
        data = {key: [column[i] for i in conditions.law] for key, column in plain.items()}
        for key in ("shift", "scale"):
            data[key] = data[key] * conditions.factor
        return Pool(**data)

    @property
    def n(self) -> int:
        """Number of workers."""
        return len(self.laws.family)

    @property
    def families(self) -> tuple[str, ...]:
        """Name of the family of each worker, length n."""
        return tuple(FAMILIES[code].name for code in self.laws.family)

    def mean(self) -> FloatArray:
        """Mean task time of each worker, shape (n,), in units of time; inf where it is infinite.

        A trace counts as an empirical law: each recorded time is equally likely. Changes are left out: see
        `env.unwrapped.means()`.
        """
        return self._moments.mean.copy()

    def mean_in(self, round: NDArray[np.int64]) -> FloatArray:
        """Mean task time in rounds of shape (...), counted from 0; shape (..., n).

        It is ``mean``, but for traces that are replayed by round: they have the recorded time of the round.

        >>> Pool("trace-by-round", times=[[1.0, 2.0, 6.0]]).mean_in(np.array([0, 4])).tolist()
        [[1.0], [2.0]]
        """
        mean = np.tile(self._moments.mean, (*round.shape, 1))
        replayed = self.laws.family == CODES["trace-by-round"]
        if replayed.any():
            _, shift, scale, _, table, first, length, _ = self.laws
            time = shift + scale * table[first + round[..., None] % length]
            mean[..., replayed] = time[..., replayed]
        return mean

    def sd(self) -> FloatArray:
        """Return the standard deviation of each worker's task time, shape (n,), inf where it is infinite."""
        return self._moments.sd.copy()

    def median(self) -> FloatArray:
        """Median task time of each worker, shape (n,)."""
        return medians(self.laws)

    def psi1_norm(self, centred: bool = False) -> FloatArray:
        """psi1 norm ``inf{c > 0 : E exp(|Y| / c) <= 2}`` of each worker's task time.

        Parameters
        ----------
        centred
            False: Y is the task time X, as the preprint assumes. True: Y is X minus its mean, as the
            ICML version assumes.

        Returns
        -------
        ndarray
            (n,), in units of time; inf where it is infinite (log-normal, pareto, weibull of shape < 1).

        Examples
        --------
        >>> Pool("exponential", scale=[1, 10]).psi1_norm().round(6)
        array([ 2., 20.])
        """
        if centred not in self._norms:
            self._norms[centred] = psi1_norms(self.laws, self._moments, centred=centred)
        return self._norms[centred].copy()

    def standard(self, i: int) -> rv_frozen:
        """Law of ``Z`` of worker i as a scipy distribution, where it has a density.

        Raises
        ------
        ValueError
            For a deterministic worker or a trace.
        """
        family = FAMILIES[int(self.laws.family[i])]
        return family.distribution(float(self.laws.shape[i]))

    def record(self, i: int) -> FloatArray:
        """Give the recorded times of worker i, shape (length,), read-only.

        Raises
        ------
        ValueError
            If worker i replays no trace.
        """
        family = FAMILIES[self.laws.family[i]]
        if not family.trace:
            raise ValueError(f"worker {i} is {family.name} and replays no trace")
        first = self.laws.first[i]
        return self.laws.table[first : first + self.laws.length[i]]

    def __add__(self, other: Pool) -> Pool:
        return concatenate([self, other]) if isinstance(other, Pool) else NotImplemented

    def __len__(self) -> int:
        return self.n

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pool):
            return NotImplemented
        alike = all(np.array_equal(mine, theirs) for mine, theirs in zip(self.laws, other.laws, strict=True))
        return alike and self.changes == other.changes

    def __hash__(self) -> int:
        if not self._hash:
            columns = tuple(column.tobytes() for column in self.laws)
            object.__setattr__(self, "_hash", hash((columns, self.changes)) or 1)
        return self._hash

    def __repr__(self) -> str:
        names = ", ".join(FAMILIES[code].name for code in np.unique(self.laws.family))
        low, high = self._moments.mean.min(), self._moments.mean.max()
        times = f"mean time {low:.6g}" if low == high else f"mean times {low:.6g} to {high:.6g}"
        changes = "".join(f", {change}" for change in self.changes)
        return f"Pool(n={self.n}, {names}, {times}{changes})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"pools are immutable: make a new one instead of setting {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"pools are immutable: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return from_laws, (self.laws, self.changes)

    def _fill(self, laws: Laws, changes: tuple[Change, ...] = ()) -> None:
        for column in laws:
            column.flags.writeable = False
        derived: dict[str, object] = {"_moments": moments(laws), "_norms": {}, "_hash": 0}
        for name, value in ({"laws": laws, "changes": changes} | derived).items():
            object.__setattr__(self, name, value)


def concatenate(pools: Iterable[Pool]) -> Pool:
    """Join pools into one, workers in the order given; so one pool mixes families.

    Raises
    ------
    ValueError
        If there is no pool, or something else among them, or one that changes: changes are of a pool as a whole, so
        join first.

    Examples
    --------
    >>> concatenate([Pool("exponential", scale=[1, 2]), Pool("uniform", scale=6)]).mean()
    array([1., 2., 3.])
    """
    parts = list(pools)
    if not parts or not all(isinstance(part, Pool) for part in parts):
        raise ValueError(f"concatenate takes at least one pool, and only pools, got {checks.short(parts)}")
    if any(part.changes for part in parts):
        raise ValueError("a pool that changes cannot be joined: join the pools first, then call changing(...)")
    columns = [np.concatenate(column) for column in zip(*(part.laws for part in parts), strict=True)]
    codes, shift, scale, shape, _, _, length, limit = columns
    tables = [part.laws.table for part in parts if np.isin(part.laws.family, RECORDED).any()]
    table = np.concatenate(tables) if tables else np.zeros(1)
    return from_laws(Laws(codes, shift, scale, shape, table, offsets(codes, length), length, limit))


def from_laws(laws: Laws, changes: tuple[Change, ...] = ()) -> Pool:
    """Make a pool from laws that a pool has had, without checking them again."""
    pool = Pool.__new__(Pool)
    pool._fill(laws, changes)
    return pool
