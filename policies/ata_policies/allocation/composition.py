"""A policy as a composition: memory x estimate x rule."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import flag, unknown
from ata_policies.allocation.estimates.ata import Ata, AtaEmpirical
from ata_policies.allocation.estimates.bounds import Cucb, KlGamma, KlLcb, UcbV
from ata_policies.allocation.estimates.estimate import Estimate, Mean
from ata_policies.allocation.estimates.robust import Catoni, MedianOfMeans, TruncatedMean
from ata_policies.allocation.estimates.thompson import Thompson, ThompsonGamma
from ata_policies.allocation.rules import Beta, EpsilonUniform, Proxy, Round, Rule
from ata_policies.beliefs.availability import LONGEST, PAUSE, Availability, results_of
from ata_policies.beliefs.memory import Discount, Everything, Memory, Restarts, Window
from ata_policies.beliefs.moments import Moments, learn_shapes
from ata_policies.beliefs.prior import Prior
from ata_policies.facts import Described
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting

MEMORIES: Mapping[str, type[Memory]] = MappingProxyType(
    {"everything": Everything, "window": Window, "discount": Discount, "restarting": Restarts, "prior": Prior}
)
ESTIMATES: dict[str, type[Estimate]] = {
    "ata": Ata, "ata-empirical": AtaEmpirical, "mean": Mean, "cucb": Cucb, "ucb-v": UcbV, "kl-lcb": KlLcb,
    "kl-gamma": KlGamma, "thompson": Thompson, "thompson-gamma": ThompsonGamma, "median-of-means": MedianOfMeans,
    "catoni": Catoni, "truncated-mean": TruncatedMean,
}  # fmt: skip
RULES: Mapping[str, type[Rule]] = MappingProxyType({"proxy": Proxy, "beta": Beta, "epsilon-uniform": EpsilonUniform})

_WEIGHT = 5.0  # tasks that the others' shapes count for, where the rule needs shapes that the estimate does not know


class ComposedPlan(NamedTuple):
    """What a composed policy keeps between rounds, beside the belief."""

    availability: Availability | tuple[()]  # which workers are there, where that is watched


class ComposedPolicy(Policy):
    """A policy of ``ata_gym/TaskAllocation-v0`` made of three parts: what counts, a score per worker, a rule.

    ValueError if there is no such part or hyperparameter, or the parts do not fit together.

    - ``estimate``, ``memory``, ``rule``: a score per worker from what counts, what counts, and scores to allocation:
      keys of ``ESTIMATES``, ``MEMORIES`` and ``RULES``.
    - ``availability``: whether a worker that gave fewer results than it had tasks gets nothing but probes after 8 to 64
      rounds (``Availability``); by default with the memory "restarting" alone.
    - ``hyperparameters``: those of the three parts, by name.

    >>> setting = Setting(n=3, budget=5)
    >>> policy = ComposedPolicy(setting, estimate="thompson", memory="window", rule="beta", window=60)
    >>> policy.memory.window, policy.rule.beta
    (60, 1.5)
    >>> ComposedPolicy(setting, estimate="catoni", memory="window")
    Traceback (most recent call last):
        ...
    ValueError: the estimate catoni keeps sums in blocks, which the memory window cannot give: use memory="everything"
    """

    def __init__(
        self, setting: Setting, *, estimate: str, memory: str = "everything", rule: str = "proxy",
        availability: bool | None = None, seed: int = 0, **hyperparameters: Any,
    ) -> None:  # fmt: skip
        super().__init__(setting, seed=seed)
        chosen: list[type[Any]] = []
        for kind, name, known in (
            ("estimate", estimate, ESTIMATES),
            ("memory", memory, MEMORIES),
            ("rule", rule, RULES),
        ):
            if name not in known:
                raise unknown(kind, str(name), known)
            chosen.append(known[name])
        own = chosen[0].own_statistics
        if own and memory != "everything":
            raise ValueError(
                f'the estimate {estimate} keeps {own}, which the memory {memory} cannot give: use memory="everything"'
            )
        if own and chosen[2].needs_shape:
            raise ValueError(f"the rule {rule} needs the spread of the task times, which {estimate} does not estimate")
        given = {**chosen[0].memory_defaults.get(memory, {}), **hyperparameters}
        made = [one(**{name: given[name] for name in names_of(one) if name in given}) for one in chosen]
        names = [name for one in chosen for name in names_of(one)]
        surplus = hyperparameters.keys() - set(names)
        if surplus:
            raise ValueError(
                f"{estimate} with memory {memory} and rule {rule} does not take {', '.join(sorted(surplus))}; its "
                f"hyperparameters are: {', '.join(names) or 'none'}"
            )
        self.estimate: Estimate = made[0].fit(setting)
        self.memory: Memory = made[1]
        self.rule: Rule = made[2]
        self.deviations = self.estimate.deviations or (self.rule.needs_shape and not self.estimate.gives_shape)
        self.availability = self.memory.availability if availability is None else flag("availability", availability)
        self.first_belief(1)  # the memory may not fit the estimate or the workers

    @classmethod
    def made_of(
        cls, *, estimate: Any = "", memory: Any = "everything", rule: Any = "proxy", **_: Any
    ) -> Sequence[type[Described]]:
        chosen = (ESTIMATES.get(estimate), RULES.get(rule), MEMORIES.get(memory))
        return [part for part in chosen if part is not None] or [cls]

    def first_belief(self, rows: int) -> Any:
        if self.estimate.own_statistics:
            return self.estimate.start(rows, self.setting.n)
        return self.memory.start(rows, self.setting.n, self.deviations)

    def first_plan(self, rows: int) -> ComposedPlan:
        return ComposedPlan(Availability.full(rows, self.setting.n, PAUSE) if self.availability else ())

    def about(self) -> str:
        memory, estimate, rule = (type(part).__name__ for part in (self.memory, self.estimate, self.rule))
        return f"memory {memory}, estimate {estimate}, rule {rule}"

    def estimated(self, state: State) -> tuple[Floats, Floats]:
        return np.where(self.untried(state), np.nan, self.estimate.mean(state.belief)), state.belief.counts

    def untried(self, state: State) -> Mask:
        return self.memory.recall(state.belief)[1]

    def last_action(self, state: State) -> Ints | None:
        return state.plan.availability.asked if self.availability else None

    def plan_in_words(self, state: State, row: int) -> str:
        away = "workers that owe results get nothing but a probe at intervals" if self.availability else ""
        return "; ".join(filter(None, (self.estimate.in_words(self.setting), away)))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        keys, available, availability = state.round_keys(), None, state.plan.availability
        if self.availability:
            availability = availability.after(results_of(seen["worker"], self.setting.n), PAUSE, LONGEST)
            available = availability.available()
        updated = self.estimate.updated(state.belief)
        belief, untried = self.memory.recall(updated)
        scores = self.estimate.scores(belief, self.memory.rounds(belief, state.round), keys)
        if self.rule.needs_shape and scores.shape is None:
            seen_times = Moments(belief.counts, belief.totals, belief.deviations)
            scores = scores._replace(shape=learn_shapes(seen_times, _WEIGHT))
        action = self.rule.allocate(scores, Round(self.setting.budget, state.round, keys, untried, available))
        if self.availability:
            availability = availability._replace(asked=action)
        return action, state._replace(belief=updated, plan=ComposedPlan(availability))


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of a part's hyperparameters."""
    return tuple(field.name for field in fields(kind))
