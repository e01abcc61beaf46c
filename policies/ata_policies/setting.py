"""The setting of a policy: what may be known of a scenario before it starts.

And how much of that a policy is told.
"""

import inspect
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np

from ata_gym.pools import Pool, PoolDistribution, exponential
from ata_gym.scenarios import Published, Scenario
from ata_gym.typing import Floats
from ata_gym.utils.validation import not_an_env, short
from ata_policies.facts import (
    DECLARED_BY,
    UndeclaredError,
    granted,
    joined_facts,
    undeclared,
)


class Norms:
    """Bounds on the psi1 norms of a pool's workers.

    ATA must know them, and nothing else of the pool.

    Args:
        pool: The workers.
        drawn: How they are drawn anew, if they are.
    """

    def __init__(self, pool: Pool, drawn: PoolDistribution | None = None) -> None:
        self._pool = pool
        self._drawn = drawn

    def largest(self, *, centred: bool, relative: bool) -> tuple[float, str]:
        """Return the largest psi1 norm that a worker has, or can have, and words on it.

        A worker can have it where workers are drawn anew. An infinite norm counts as the norm of
        exponential times of the same mean.

        Args:
            centred: Whether it is the norm of X - mean, in place of X.
            relative: Whether it is divided by the mean.
        """
        mean = self._pool.mean()
        norms = self._pool.psi1_norm(centred)
        stand_in = exponential([1.0]).psi1_norm(centred)
        finite = np.isfinite(norms)
        if self._drawn:
            remark = " that can be drawn"
        else:
            remark = ""
        if relative:
            bounds = np.divide(norms, mean, out=np.full_like(norms, stand_in), where=finite)
        else:
            # the pool's means are 1 then
            if self._drawn is None:
                slowest = 1.0
            else:
                slowest = self._drawn.heterogeneity[1]
            bounds = np.where(finite, norms, stand_in * mean) * slowest
        if not finite.all():
            remark += ", where infinite the norm of exponential times of the same mean"
        return float(bounds.max()), remark


class Setting(NamedTuple):
    """The part of a scenario that a policy may know before it starts.

    Each policy is told what it says that it must know.
    """

    n: int
    """Workers."""
    budget: int
    """Results B that a round needs."""
    price: float = 0.0
    """What one unit of worker time costs in units of runtime."""
    pool: Pool | None = None
    """The distributions of the task times, for oracles.

    Where workers are drawn anew, these are the distributions that they are drawn from, each of mean
    1.
    """
    published: Published = Published()
    """The hyperparameters of ATA and ATA-Empirical published for the scenario."""
    horizon: int | None = None
    """Rounds in an episode, where that is known."""
    drawn: PoolDistribution | None = None
    """How workers are drawn anew, from the distributions of ``pool``.

    None where ``pool`` holds the workers themselves.
    """
    unit_costs: Sequence[float] | None = None
    """(n,) what a unit of each worker's time counts for in worker time; None: 1."""
    needs_allocation: bool = False
    """Whether task times depend on the allocation of the round itself, which no oracle is told."""
    delay: int = 0
    """Rounds after which the results of a round are known; 0: before the next round."""
    deadline: float | None = None
    """The time of a round from which tasks of workers that are away are handed on, if known.

    Like the budget it is chosen by who runs the round.
    """

    @property
    def prices(self) -> Floats:
        """What a unit of each worker's time costs in units of runtime, (n,)."""
        even = self.price * np.ones(self.n)
        if self.unit_costs is None:
            return even
        return even * self.unit_costs

    @property
    def norms(self) -> Norms | None:
        """Bounds on the psi1 norms of the workers, for ATA where none were published.

        None if no pool is known.
        """
        if self.pool is None:
            return None
        return Norms(self.pool, self.drawn)

    @classmethod
    def from_env(cls, env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]) -> Self:
        """Return the setting of a single or a vector env.

        Raises:
            ValueError: If it is an env of another project.
        """
        scenario = getattr(getattr(env, "unwrapped", None), "scenario", None)
        if not isinstance(scenario, Scenario):
            raise not_an_env(env)
        return cls.from_scenario(scenario, getattr(env.unwrapped, "delay", 0))

    @classmethod
    def from_scenario(cls, scenario: Scenario, delay: int = 0) -> Self:
        """Return the setting of a scenario.

        Args:
            scenario: The scenario.
            delay: Rounds after which the results of a round are known.
        """
        n = scenario.pool.n
        budget = scenario.budget
        price = scenario.price
        pool = scenario.catalogue
        return cls(
            n,
            budget,
            price,
            pool,
            scenario.published,
            scenario.horizon,
            scenario.pool_distribution,
            scenario.unit_costs,
            scenario.needs_allocation,
            delay,
            scenario.deadline,
        )

    def known_pool(self, policy: str, dynamic: bool = False) -> Pool:
        """Return the pool.

        Args:
            policy: The name of the policy that asks, for errors.
            dynamic: Whether the policy is told each round's workers.

        Raises:
            ValueError: If the pool is not known, if workers are drawn anew and the policy is not
                ``dynamic``, and if a round's task times cannot be told, as they depend on what the
                policy is about to decide.
        """
        if self.pool is None:
            raise ValueError(f"{policy} knows the workers: it needs an env whose pool is known")
        if not dynamic and self.drawn:
            raise ValueError(
                f"{policy} knows the workers, and here they are drawn anew: use a dynamic oracle",
            )
        if dynamic and self.needs_allocation:
            raise ValueError(
                f"{policy} knows the task times of each round, and under ShareTime they depend on"
                " its own allocation: play a policy that learns",
            )
        return self.pool

    def disclosed_to(self, policy: str, knows: str) -> "Setting":
        """Return the setting as it is told to a policy.

        Where the policy reads a piece that is not ``granted`` to it, an UndeclaredError says what
        to declare. What was not told to a policy, it cannot tell to a policy that it makes itself.

        Args:
            policy: Its name.
            knows: What it says that it must know beforehand.

        Example:
            >>> setting = Setting(2, 3, pool=exponential([1.0, 2.0]))
            >>> setting = setting.disclosed_to("mine", "nothing")
            >>> setting.budget, tuple(setting)[3]
            (3, None)
            >>> setting.pool
            Traceback (most recent call last):
                ...
            ata_policies.facts.UndeclaredError: mine says knows = "nothing", so setting.pool is ...
        """
        return _PartialSetting.without(self, _withheld(policy, knows), self.norms)


class _PartialSetting(Setting):
    """A setting without some of its pieces; reading one of them raises an UndeclaredError."""

    _withheld: Mapping[str, str]
    """The sentence of the error, by piece."""
    _norms: Norms | None
    """The norms of the whole setting, where they are disclosed."""

    @classmethod
    def without(cls, setting: Setting, withheld: Mapping[str, str], norms: Norms | None) -> Self:
        """Return a setting without some pieces, whose places are empty.

        Args:
            setting: The whole setting.
            withheld: The sentence of the error, by piece.
            norms: The norms of the whole setting.
        """
        pieces = setting._asdict()
        empty = {"pool": None, "published": Published(), "drawn": None}
        for name in withheld:
            if name in pieces:
                pieces[name] = empty.get(name)
        partial = cls._make(pieces.values())
        partial._withheld = withheld
        if "norms" in withheld:
            partial._norms = None
        else:
            partial._norms = norms
        return partial

    pool = property(lambda self: self._disclosed("pool", self[3]))
    published = property(lambda self: self._disclosed("published", self[4]))
    drawn = property(lambda self: self._disclosed("drawn", self[6]))
    norms = property(lambda self: self._disclosed("norms", self._norms))

    def disclosed_to(self, policy: str, knows: str) -> Setting:
        return self.without(self, {**_withheld(policy, knows), **self._withheld}, self._norms)

    def _replace(self, **changes: Any) -> Setting:  # type: ignore[override]
        # a policy may well use an oracle on a pool of its own
        changed = Setting(*self)._replace(**changes)
        if "pool" in changes:
            return changed
        return self.without(changed, self._withheld, self._norms)

    def _disclosed(self, piece: str, value: Any) -> Any:
        """Return the value of a piece, if it is told."""
        if piece in self._withheld:
            raise UndeclaredError(self._withheld[piece])
        return value


class PolicyClass(ABCMeta):
    """The type of the classes of policies.

    Whoever makes a policy, it is told of the setting what its class says that it must know, before
    its own code runs.
    """

    def __call__(cls, setting: Setting, *args: Any, **hyperparameters: Any) -> Any:
        """Make a policy.

        Args:
            setting: What may be known of the scenario; the policy is told a part of it.
            args: Further arguments of the constructor.
            hyperparameters: Keyword arguments of the constructor.

        Raises:
            UndeclaredError: If it needs the conditions of each round, and does not say so.
            ValueError: If ``setting`` is no setting.
        """
        if not isinstance(setting, Setting):
            raise ValueError(  # noqa: TRY004
                f"{cls.__name__} is made for a setting, such as Setting.from_env(env), not for"
                f" {short(setting)}",
            )
        policy_class: Any = cls
        knows = joined_facts(policy_class.parts_for(**hyperparameters), "knows")
        policy = super().__call__(
            setting.disclosed_to(cls.__name__, knows), *args, **hyperparameters
        )
        if getattr(policy, "privileged", False) and "conditions" not in granted(knows):
            information = "what predict gets as privileged"
            raise UndeclaredError(undeclared(cls.__name__, knows, information, "conditions"))
        return policy

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the constructor."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def _withheld(policy: str, knows: str) -> dict[str, str]:
    """Return the sentence of an error for each piece that is not told to the policy."""
    granted_pieces = granted(knows)
    pieces = {piece: f"setting.{piece}" for piece in DECLARED_BY if piece != "conditions"}
    return {
        piece: undeclared(policy, knows, expression, piece)
        for piece, expression in pieces.items()
        if piece not in granted_pieces
    }
