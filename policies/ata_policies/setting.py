"""The setting of a policy: what may be known of a scenario before it starts, and how much of that a policy is told."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np

from ata_gym.pools import Pool, PoolDistribution, exponential
from ata_gym.scenarios import Published, Scenario
from ata_gym.typing import Floats
from ata_gym.utils.validation import not_an_env
from ata_policies.facts import DECLARED_BY, UndeclaredError, granted, undeclared


class Norms:
    """Bounds on the psi1 norms of a pool's workers: what ATA must know, and nothing else of the pool."""

    def __init__(self, pool: Pool, drawn: PoolDistribution | None = None) -> None:
        self._pool, self._drawn = pool, drawn

    def largest(self, *, centred: bool, relative: bool) -> tuple[float, str]:
        """The largest psi1 norm that a worker has, or can have where workers are drawn anew; and words on it.

        It is that of X, or of X - mean if ``centred``, over the mean if ``relative``. A norm that is infinite counts as
        that of exponential times of the same mean.
        """
        mean, norms = self._pool.mean(), self._pool.psi1_norm(centred)
        stand_in = exponential([1.0]).psi1_norm(centred)
        finite, words = np.isfinite(norms), " that can be drawn" if self._drawn else ""
        if relative:
            bounds = np.divide(norms, mean, out=np.full_like(norms, stand_in), where=finite)
        else:
            slowest = 1.0 if self._drawn is None else self._drawn.heterogeneity[1]  # the pool's means are 1 then
            bounds = np.where(finite, norms, stand_in * mean) * slowest
        if not finite.all():
            words += ", where infinite that of exponential times of the same mean"
        return float(bounds.max()), words


class Setting(NamedTuple):
    """The part of a scenario that a policy may know before it starts; each policy is told what it says it must know."""

    n: int  # workers
    budget: int  # results B that a round needs
    price: float = 0.0  # what one unit of worker time costs in units of runtime
    pool: Pool | None = None
    """The distributions of the task times, for oracles.

    Where workers are drawn anew, these are the distributions that they are drawn from, each of mean 1.
    """
    published: Published = Published()  # the hyperparameters of ATA and ATA-Empirical published for the scenario
    horizon: int | None = None  # rounds in an episode, where that is known
    drawn: PoolDistribution | None = None
    """How workers are drawn anew, from the distributions of ``pool``; None where the workers are those of ``pool``."""
    unit_costs: Sequence[float] | None = None
    """(n,) what a unit of each worker's time counts for in worker time; None: 1."""

    @property
    def prices(self) -> Floats:
        """What a unit of each worker's time costs in units of runtime, (n,)."""
        return self.price * np.ones(self.n) * (1.0 if self.unit_costs is None else self.unit_costs)

    @property
    def norms(self) -> Norms | None:
        """Bounds on the psi1 norms of the workers, for ATA where none were published; None if no pool is known."""
        return None if self.pool is None else Norms(self.pool, self.drawn)

    @classmethod
    def of(cls, env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]) -> Self:
        """The setting of a single or a vector env of this project; ValueError if it is another env."""
        scenario = getattr(getattr(env, "unwrapped", None), "scenario", None)
        if not isinstance(scenario, Scenario):
            raise not_an_env(env)
        return cls.in_scenario(scenario)

    @classmethod
    def in_scenario(cls, scenario: Scenario) -> Self:
        """The setting of a scenario."""
        n, budget, price, pool = scenario.pool.n, scenario.budget, scenario.price, scenario.catalogue
        return cls(n, budget, price, pool, scenario.published, scenario.horizon, scenario.drawn, scenario.unit_costs)

    def known_pool(self, policy: str, dynamic: bool = False) -> Pool:
        """The pool; ValueError if it is not known, or if workers are drawn anew and the policy is not ``dynamic``."""
        if self.pool is None:
            raise ValueError(f"{policy} knows the workers: it needs an env whose pool is known")
        if not dynamic and self.drawn:
            raise ValueError(f"{policy} knows the workers, and here they are drawn anew: use a dynamic oracle")
        return self.pool

    def told_to(self, policy: str, knows: str) -> "Setting":
        """The setting as it is told to a policy of this name, which says that it must know this beforehand.

        Where it reads a piece that is not ``granted`` for that, an UndeclaredError says what to declare. What was not
        told to a policy, it cannot tell to a policy that it makes itself.

        >>> told = Setting(2, 3, pool=exponential([1.0, 2.0])).told_to("mine", "nothing")
        >>> told.budget, tuple(told)[3]
        (3, None)
        >>> told.pool
        Traceback (most recent call last):
            ...
        ata_policies.facts.UndeclaredError: mine says knows = "nothing", so setting.pool is not given to it: a policy \
that must know it beforehand says knows = "the distributions", or "the means"
        """
        return _ToldSetting.without(self, _withheld(policy, knows), self.norms)


class _ToldSetting(Setting):
    """A setting without some of its pieces; reading one of them raises an UndeclaredError."""

    _withheld: Mapping[str, str]  # the sentence of the error, by piece
    _norms: Norms | None  # those of the whole setting, where they are told

    @classmethod
    def without(cls, setting: Setting, withheld: Mapping[str, str], norms: Norms | None) -> Self:
        """A setting without these pieces, whose places are empty."""
        empty = {"pool": None, "published": Published(), "drawn": None}
        pieces = setting._asdict().items()
        told = cls._make(empty.get(name) if name in withheld else piece for name, piece in pieces)
        told._withheld, told._norms = withheld, None if "norms" in withheld else norms
        return told

    pool = property(lambda self: self._told("pool", self[3]))
    published = property(lambda self: self._told("published", self[4]))
    drawn = property(lambda self: self._told("drawn", self[6]))
    norms = property(lambda self: self._told("norms", self._norms))

    def told_to(self, policy: str, knows: str) -> Setting:
        return self.without(self, {**_withheld(policy, knows), **self._withheld}, self._norms)

    def _replace(self, **changes: Any) -> Setting:  # type: ignore[override]
        changed = Setting(*self)._replace(**changes)  # a policy may well use an oracle on a pool of its own
        return changed if "pool" in changes else self.without(changed, self._withheld, self._norms)

    def _told(self, piece: str, value: Any) -> Any:
        if piece in self._withheld:
            raise UndeclaredError(self._withheld[piece])
        return value


def _withheld(policy: str, knows: str) -> dict[str, str]:
    kept = granted(knows)
    pieces = {piece: f"setting.{piece}" for piece in DECLARED_BY if piece != "conditions"}
    return {piece: undeclared(policy, knows, what, piece) for piece, what in pieces.items() if piece not in kept}
