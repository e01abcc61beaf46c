"""Rules: from scores to an allocation of exactly B tasks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.proxy_loss import allocate_scores
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.validation import non_negative, real
from ata_policies.facts import Described
from ata_policies.observations import LONGEST_TIME


class Scores(NamedTuple):
    """What an estimate says of E rows of n workers."""

    score: Floats
    """(E, n) estimated mean task times, or bounds of them; low is good.

    A worker never tried has 0.
    """
    shape: Floats | float | None = None
    """1 / (coefficient of variation)^2 of the task times, broadcasting to (E, n).

    None where the estimate does not know it.
    """


class RoundContext(NamedTuple):
    """What a rule needs to know of the coming round, beside the scores."""

    budget: int
    """Tasks B to hand out."""
    round: Ints
    """(E,) the current round, from 1 on."""
    keys: Keys
    """(E,) the key of each row's randomness in the round."""
    untried: Mask
    """(E, n) workers that were never tried."""
    available: Mask | None
    """(E, n) workers that may get tasks; None: all."""
    latency: Floats | None = None
    """(E, n) expected latencies; None: the workers pay none."""


class Rule(Described, ABC):
    """Hyperparameters of a rule."""

    needs_shape: ClassVar[bool] = False
    """Whether it needs the shapes of the task times."""

    @abstractmethod
    def allocate(self, scores: Scores, context: RoundContext) -> Ints:
        """Return the tasks of each worker, (E, n), each row summing to B."""


@dataclass(frozen=True)
class Proxy(Rule):
    """Minimises the proxy loss max a_i s_i (``ata_gym.allocate``).

    Workers never tried come first. Where workers pay a latency c_i, it is max c_i + a_i s_i.
    """

    def allocate(self, scores: Scores, context: RoundContext) -> Ints:
        return allocate_scores(
            scores.score,
            context.budget,
            context.keys,
            context.untried,
            context.available,
            latency=context.latency,
        )


@dataclass(frozen=True)
class Beta(Rule):
    """Hands out the B cheapest tasks; worker i's j-th costs j s_i + beta s_i sqrt(j / c_i).

    Here s_i is the worker's score, and c_i its shape. A round waits for a sum that is some standard
    deviations above its mean; beta = 0 is the proxy loss. Where workers pay a latency, their tasks
    cost as much more. This rule is ours.

    Args:
        beta: Standard deviations to allow for, at least 0. Good values: 1.15 to 1.75 for the
            published settings.
    """

    beta: float = 1.5

    needs_shape = True
    constants = "beta 1.5"

    def __post_init__(self) -> None:
        non_negative("beta", self.beta)

    def allocate(self, scores: Scores, context: RoundContext) -> Ints:
        spread = np.minimum(
            self.beta * scores.score / np.sqrt(np.asarray(scores.shape)), LONGEST_TIME
        )
        return allocate_by_cost(
            scores.score,
            spread,
            context.budget,
            context.keys,
            context.untried,
            context.available,
            context.latency,
        )


@dataclass(frozen=True)
class EpsilonUniform(Rule):
    """Minimises the proxy loss, but allocates a round uniformly with probability epsilon.

    The literature calls it epsilon-greedy. In round k, epsilon = min(1, c n / k), for which Auer,
    Cesa-Bianchi and Fischer ("Finite-time analysis of the multiarmed bandit problem", 2002) show
    logarithmic regret if c is large enough. A uniform round allocates as UTA does.

    Args:
        c: Above 0: there are about c n ln(K) uniform rounds in K rounds.
    """

    c: float = 0.05

    source = "Auer, Cesa-Bianchi and Fischer, 2002"
    constants = "min(1, 0.05 n / k)"

    def __post_init__(self) -> None:
        real("c", self.c)

    def allocate(self, scores: Scores, context: RoundContext) -> Ints:
        epsilon = float(self.c) * scores.score.shape[-1] / context.round
        uniform = uniforms(derive_keys(context.keys, 0, 1), 1) < epsilon[:, None]
        masked = Scores(np.where(uniform, 0.0, scores.score))
        return Proxy().allocate(masked, context._replace(untried=context.untried & ~uniform))
