"""A policy as a composition: memory x estimate x rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import flag, unknown
from ata_policies.allocation.estimates.ata import Ata, AtaEmpirical
from ata_policies.allocation.estimates.bounds import Cucb, KlGamma, KlLcb, UcbV
from ata_policies.allocation.estimates.estimate import Estimate, Mean
from ata_policies.allocation.estimates.mots import Mots
from ata_policies.allocation.estimates.robust import Catoni, MedianOfMeans, TruncatedMean
from ata_policies.allocation.estimates.thompson import Thompson, ThompsonGamma
from ata_policies.allocation.rules import Beta, EpsilonUniform, Proxy, RoundContext, Rule
from ata_policies.beliefs.availability import Availability
from ata_policies.beliefs.belief import CountedBelief
from ata_policies.beliefs.memory import Discount, Everything, Memory, Restarts, Window
from ata_policies.beliefs.moments import LatencyBelief, Moments, learn_shapes
from ata_policies.beliefs.prior import Prior
from ata_policies.facts import Described
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting

MEMORIES: Mapping[str, type[Memory[Any]]] = MappingProxyType(
    {
        "everything": Everything,
        "window": Window,
        "discount": Discount,
        "restarting": Restarts,
        "prior": Prior,
    },
)
ESTIMATES: Mapping[str, type[Estimate[Any]]] = {
    "ata": Ata,
    "ata-empirical": AtaEmpirical,
    "mean": Mean,
    "cucb": Cucb,
    "ucb-v": UcbV,
    "kl-lcb": KlLcb,
    "kl-gamma": KlGamma,
    "thompson": Thompson,
    "thompson-gamma": ThompsonGamma,
    "mots": Mots,
    "median-of-means": MedianOfMeans,
    "catoni": Catoni,
    "truncated-mean": TruncatedMean,
}
RULES: Mapping[str, type[Rule]] = MappingProxyType(
    {"proxy": Proxy, "beta": Beta, "epsilon-uniform": EpsilonUniform},
)

PartT = TypeVar("PartT")

_WEIGHT = 5.0
"""Tasks that the others' shapes count for, where only the rule needs shapes."""


class ComposedPlan(NamedTuple):
    """What a composed policy keeps between rounds, beside the belief."""

    availability: Availability | tuple[()]
    """Which workers are there, where that is watched."""


class ComposedPolicy(Policy[CountedBelief, ComposedPlan]):
    """A policy of ``ata_gym/TaskAllocation-v0`` made of a memory, an estimate and a rule.

    The rule counts the mean latencies that workers have shown, over all rounds.

    Args:
        estimate: A score per worker from what counts: a key of ``ESTIMATES``.
        memory: What counts: a key of ``MEMORIES``.
        rule: From scores to an allocation: a key of ``RULES``.
        availability: Whether a worker that gave fewer results than it had tasks gets nothing but
            probes at intervals (``Availability``); by default only with the memory "restarting".
        seed: The seed of the policy's own randomness.
        hyperparameters: The hyperparameters of the three parts, by name.

    Raises:
        ValueError: If there is no such part or hyperparameter, or the parts do not fit together.

    Example:
        >>> setting = Setting(n=3, budget=5)
        >>> parts = {"estimate": "thompson", "memory": "window", "rule": "beta"}
        >>> policy = ComposedPolicy(setting, **parts, window=60)
        >>> policy.memory.window, policy.rule.beta
        (60, 1.5)
        >>> try:
        ...     ComposedPolicy(setting, estimate="catoni", memory="window")
        ... except ValueError as error:
        ...     print(str(error).partition(":")[0])
        the estimate catoni keeps sums in blocks, which the memory window cannot give
    """

    uses_latency = True

    def __init__(
        self,
        setting: Setting,
        *,
        estimate: str,
        memory: str = "everything",
        rule: str = "proxy",
        availability: bool | None = None,
        seed: int = 0,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(setting, seed=seed)
        classes = _classes_of(estimate, memory, rule)
        statistics = classes.estimate.own_statistics
        if statistics and memory != "everything":
            raise ValueError(
                f"the estimate {estimate} keeps {statistics}, which the memory {memory} cannot"
                ' give: use memory="everything"',
            )
        if statistics and classes.rule.needs_shape:
            raise ValueError(
                f"the rule {rule} needs the spread of the task times, which {estimate} does not"
                " estimate",
            )
        values = {**classes.estimate.memory_defaults.get(memory, {}), **hyperparameters}
        names = [name for part in classes for name in names_of(part)]
        surplus = hyperparameters.keys() - set(names)
        if surplus:
            raise ValueError(
                f"{estimate} with memory {memory} and rule {rule} does not take"
                f" {', '.join(sorted(surplus))}; its hyperparameters are:"
                f" {', '.join(names) or 'none'}",
            )
        estimate_part: Estimate[Any] = _make_part(classes.estimate, values)
        self.memory: Memory[Any] = _make_part(classes.memory, values)
        self.rule: Rule = _make_part(classes.rule, values)
        self.estimate = estimate_part.fit(setting)
        self.deviations = self.estimate.deviations or (
            self.rule.needs_shape and not self.estimate.gives_shape
        )
        if availability is None:
            self.availability = self.memory.availability
        else:
            self.availability = flag("availability", availability)
        # it raises an error where the memory does not fit the estimate or the workers
        self.first_belief(1)

    @classmethod
    def parts_for(
        cls,
        *,
        estimate: Any = "",
        memory: Any = "everything",
        rule: Any = "proxy",
        **_: Any,
    ) -> Sequence[type[Described]]:
        parts = (ESTIMATES.get(estimate), RULES.get(rule), MEMORIES.get(memory))
        return [part for part in parts if part is not None] or [cls]

    def first_belief(self, rows: int) -> CountedBelief:
        belief: CountedBelief
        if self.estimate.own_statistics:
            belief = self.estimate.start(rows, self.setting.n)
        else:
            belief = self.memory.start(rows, self.setting.n, self.deviations)
        return belief

    def first_plan(self, rows: int) -> ComposedPlan:
        if self.availability:
            return ComposedPlan(Availability.full(rows, self.setting.n))
        return ComposedPlan(())

    def about(self) -> str:
        memory, estimate, rule = (
            type(part).__name__ for part in (self.memory, self.estimate, self.rule)
        )
        return f"memory {memory}, estimate {estimate}, rule {rule}"

    def estimated(self, state: State[CountedBelief, ComposedPlan]) -> tuple[Floats, Floats]:
        means = np.where(self.untried(state), np.nan, self.estimate.mean(state.belief))
        return means, state.belief.counts

    def untried(self, state: State[CountedBelief, ComposedPlan]) -> Mask:
        return self.memory.recall(state.belief)[1]

    def last_action(self, state: State[CountedBelief, ComposedPlan]) -> Ints | None:
        availability = state.plan.availability
        if isinstance(availability, Availability):
            return availability.allocation
        return None

    def describe_plan(self, state: State[CountedBelief, ComposedPlan], row: int) -> str:
        if self.availability:
            note = "workers that owe results get nothing but a probe at intervals"
        else:
            note = ""
        return "; ".join(filter(None, (self.estimate.describe_fit(self.setting), note)))

    def act(
        self, state: State[CountedBelief, ComposedPlan], observation: Observation
    ) -> tuple[Ints, State[CountedBelief, ComposedPlan]]:
        keys = state.round_keys()
        available = None
        availability = state.plan.availability
        if isinstance(availability, Availability):
            availability = availability.observed(
                observation, self.setting.deadline, self.setting.delay
            )
            available = availability.available()
        new_belief = self.estimate.updated(state.belief)
        belief, untried = self.memory.recall(new_belief)
        scores = self.estimate.scores(belief, self.memory.rounds(belief, state.round), keys)
        if self.rule.needs_shape and scores.shape is None:
            moments = Moments(belief.counts, belief.totals, belief.deviations)
            scores = scores._replace(shape=learn_shapes(moments, _WEIGHT))
        latency = None
        if isinstance(state.latency, LatencyBelief) and state.latency.totals.any():
            latency = state.latency.mean()
        action = self.rule.allocate(
            scores,
            RoundContext(self.setting.budget, state.round, keys, untried, available, latency),
        )
        if isinstance(availability, Availability):
            availability = availability._replace(allocation=action)
        return action, state._replace(belief=new_belief, plan=ComposedPlan(availability))


class _Classes(NamedTuple):
    """The classes of the parts of a composition."""

    estimate: type[Estimate[Any]]
    memory: type[Memory[Any]]
    rule: type[Rule]


def _classes_of(estimate: str, memory: str, rule: str) -> _Classes:
    """Return the classes of the parts by their names; ValueError if there is no such part."""
    for kind, name, options in (
        ("estimate", estimate, ESTIMATES),
        ("memory", memory, MEMORIES),
        ("rule", rule, RULES),
    ):
        if name not in options:
            raise unknown(kind, str(name), options)
    return _Classes(ESTIMATES[estimate], MEMORIES[memory], RULES[rule])


def _make_part(part: Callable[..., PartT], values: Mapping[str, Any]) -> PartT:
    """Make a part with the values that are its hyperparameters."""
    return part(**{name: values[name] for name in names_of(part) if name in values})


def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the hyperparameters of a part, given by its class."""
    return tuple(field.name for field in fields(kind))
