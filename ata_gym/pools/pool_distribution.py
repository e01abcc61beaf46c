"""Pools drawn at random: how many workers, of which families, how unequal and how variable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy

from ata_gym.pools.families import CODES, FAMILIES
from ata_gym.pools.pool import Pool, concatenate
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.trees import as_lists
from ata_gym.utils.validation import real, short, unknown, whole_number

_LEVELS = 16
"""The number of coefficients of variation of a catalogue, in equal ratios."""


def _moments(name: str, shape: float) -> tuple[float, float]:
    """Mean and standard deviation of ``Z`` of a family."""
    family = FAMILIES[CODES[name]]
    shapes = np.array([shape])
    return float(family.mean(shapes)[0]), float(family.sd(shapes)[0])


def _weibull_shape(cv: float) -> float:
    def excess(log_shape: float) -> float:
        mean, sd = _moments("weibull", np.exp(log_shape))
        return sd / mean - cv

    return float(np.exp(scipy.optimize.brentq(excess, -2.5, 9.0)))


_SHAPES: dict[str, Callable[[float], float]] = {
    "gamma": lambda cv: cv**-2.0,
    "log-normal": lambda cv: float(np.log1p(cv**2) ** 0.5),
    "weibull": _weibull_shape,
    "pareto": lambda cv: 1.0 + (1.0 + cv**-2.0) ** 0.5,
}
"""The shape of each family that has one, from its coefficient of variation."""


class DrawnWorkers(NamedTuple):
    """The workers of E pools of n, drawn from a ``PoolDistribution``."""

    place: Ints
    """The place of each worker's distribution in the catalogue, shape (E, n)."""
    mean: Floats
    """The mean task time of each worker, shape (E, n); it multiplies the catalogue's times."""
    present: Mask
    """Whether there is such a worker, shape (E, n); if not, its place is empty."""


@dataclass(frozen=True)
class PoolDistribution:
    """How pools are drawn at random.

    Each worker gets a family, a coefficient of variation (CV) and a mean task time.

    Args:
        n: The number of workers of a pool, or of places for workers.
        fewest: Pools have from ``fewest`` to n workers, all numbers equally likely, at the first
            places; by default always n.
        families: Names of families of ``Pool`` that replay no trace; each worker has each of them
            equally likely.
        heterogeneity: The least and the largest ratio r >= 1 between the slowest mean that a pool
            may have and the fastest. The ratio is drawn for each pool, log-uniform. The means of
            its workers are log-uniform between 1 and r.
        cv: The least and the largest CV from 0.01 to 10, log-uniform for each worker, on 16 levels.
            A family that has no such CV takes the largest that it has, up to 0.58 (uniform), 0.76
            (half-normal) and 1 (exponential); "deterministic" has 0.

    Raises:
        ValueError: For a field that is out of range.

    Example:
        >>> families = ("exponential", "log-normal")
        >>> pools = PoolDistribution(n=6, families=families, heterogeneity=(2, 10), cv=(0.2, 2))
        >>> pools.catalogue.n, bool(np.allclose(pools.catalogue.mean(), 1.0))
        (32, True)
        >>> drawn = pools.draw(np.full((1, 4, 6), 0.5))
        >>> drawn.mean.round(3).tolist(), bool(drawn.present.all())
        ([[2.115, 2.115, 2.115, 2.115, 2.115, 2.115]], True)
    """

    n: int
    fewest: int | None = None
    families: tuple[str, ...] = ("exponential", "gamma", "log-normal", "uniform")
    heterogeneity: tuple[float, float] = (2.0, 10.0)
    cv: tuple[float, float] = (0.1, 2.0)

    KINDS: ClassVar[int] = 4
    """The number of uniform numbers per worker that a draw takes."""

    def __post_init__(self) -> None:
        n = whole_number("n of PoolDistribution", self.n)
        if self.fewest is None:
            fewest = n
        else:
            fewest = whole_number("fewest of PoolDistribution", self.fewest)
        if fewest > n:
            raise ValueError(f"fewest of PoolDistribution must be at most n, {n}, not {fewest}")
        if isinstance(self.families, str):
            families = (self.families,)
        else:
            families = tuple(self.families)
        family_names = [family.name for family in FAMILIES if not family.trace]
        for name in families:
            if name not in family_names:
                raise unknown("family to draw from", str(name), family_names)
        if not families:
            raise ValueError("families of PoolDistribution must name at least one family")
        heterogeneity = ordered_pair("heterogeneity", self.heterogeneity, 1.0, 1e6)
        checked = {"n": n, "fewest": fewest, "families": families, "heterogeneity": heterogeneity}
        vars(self).update(checked, cv=ordered_pair("cv", self.cv, 0.01, 10.0))

    @classmethod
    def from_data(cls, data: "PoolDistribution | Mapping[str, Any]") -> "PoolDistribution":
        """Make a distribution of pools from the data that ``to_data`` gives, also after JSON.

        Raises:
            ValueError: For anything else.
        """
        if isinstance(data, PoolDistribution):
            return data
        try:
            return cls(**data)
        except TypeError:
            fields = ", ".join(cls.__dataclass_fields__)
            raise ValueError(
                f"the data of a PoolDistribution hold {fields}, not {short(data)}",
            ) from None

    def to_data(self) -> dict[str, Any]:
        """The fields as plain data."""
        data: dict[str, Any] = as_lists(asdict(self))
        return data

    @cached_property
    def catalogue(self) -> Pool:
        """The distributions that workers have, each of mean 1, with 16 CVs for each family."""
        levels = np.geomspace(*self.cv, _LEVELS).tolist()
        return concatenate([_pool_of_mean_1(name, cv) for name in self.families for cv in levels])

    def draw(self, uniforms: Floats) -> DrawnWorkers:
        """Draw E pools.

        Args:
            uniforms: Uniform numbers strictly between 0 and 1, shape (E, 4, n).
        """
        # Of the last kind, the first number of a row gives its ratio and the last one its number of
        # workers.
        family, level, mean, row = (uniforms[:, k] for k in range(self.KINDS))
        low, high = self.heterogeneity
        ratio = low * (high / low) ** row[:, :1]
        assert self.fewest is not None
        count = self.fewest + np.floor(row[:, -1:] * (self.n - self.fewest + 1))
        family_index = np.floor(family * len(self.families))
        level_index = np.floor(level * _LEVELS)
        # The catalogue holds the levels of each family side by side.
        place = (family_index * _LEVELS + level_index).astype(np.int64)
        return DrawnWorkers(place, ratio**mean, np.arange(self.n) < count)

    def typical(self) -> Pool:
        """A pool in the middle of the range.

        It has the first family, the middle CV, and evenly spread means.
        """
        # Both are drawn log-uniformly, so that the middle is the geometric mean of the ends.
        low, high = self.heterogeneity
        ratio = float(np.sqrt(low * high))
        low, high = self.cv
        cv = float(np.sqrt(low * high))
        template = _pool_of_mean_1(self.families[0], cv).to_data()
        mean = ratio ** ((np.arange(self.n) + 0.5) / self.n)
        return Pool(
            template["family"][0],
            shift=template["shift"][0] * mean,
            scale=template["scale"][0] * mean,
            shape=template["shape"][0],
        )


def ordered_pair(
    name: str, values: Sequence[float], lowest: float, highest: float
) -> tuple[float, float]:
    """Two numbers from ``lowest`` to ``highest`` in order.

    Raises:
        ValueError: For anything else.
    """
    try:
        low, high = (real(name, value, -np.inf) for value in values)
    except (TypeError, ValueError):
        # Numbers that are not in order are refused below.
        low = 1.0
        high = 0.0
    if not lowest <= low <= high <= highest:
        raise ValueError(
            f"{name} must be two numbers from {lowest:g} to {highest:g} in order, not"
            f" {short(values)}",
        )
    return low, high


def _pool_of_mean_1(name: str, cv: float) -> Pool:
    """A pool of one worker of a family, with mean 1 and a coefficient of variation."""
    if name in _SHAPES:
        shape = _SHAPES[name](cv)
    else:
        shape = 1.0
    mean, sd = _moments(name, shape)
    # The share of the time that is random; the rest is the shift.
    if name in _SHAPES or sd == 0:
        share = 1.0
    else:
        share = min(1.0, cv * mean / sd)
    return Pool(name, shift=[1.0 - share], scale=share / mean, shape=shape)
