"""Dispatch by the expected rest of the round against a worker's mean time: with the means known, and learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.checks import whole_number
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Exposure
from ata_policies.dispatch_known import known_pool
from ata_policies.dispatch_rules import by_rest
from ata_policies.hyperparameters import real
from ata_policies.policy import DispatchPolicy, Observation, Setting, State
from ata_policies.thompson import draw_means


class RestPlan(NamedTuple):
    """What is fixed within a round."""

    mean: Floats
    """(E, n) mean task times as drawn; infinite for workers never tried."""
    order: Ints
    """(E, m) the fastest, in order."""


class _Rest(DispatchPolicy):
    """The hyperparameters of the rule."""

    constants = "m = B / 3, kappa = 0.8"

    def __init__(self, setting: Setting, *, m: int | None = None, kappa: float = 0.8, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        workers = max(1, setting.budget // 3) if m is None else whole_number("m", m)
        self.m, self.kappa = min(workers, setting.n), 0.0 if kappa == 0 else real("kappa", kappa)


class Rest(_Rest):
    """An idle worker of the m fastest starts if the expected rest of the round is at least kappa of its mean time.

    The rule is ``by_rest``. The means are drawn where a round begins, as in Thompson sampling (``draw_means``), from
    results and from the time spent on them and on cancelled tasks; workers never tried work until the first round's
    end, beside the others. A round costs more than 5 times what one of ATA costs, because it is B decisions. Ours.

    Parameters
    ----------
    m
        How many may work, at least 1; by default B / 3, rounded down.
    kappa
        At least 0.
    """

    source = "ours; Thompson, 1933, for the draws"
    assumes = "exponential times in its draws only: it explores longer than needed where times vary less"

    def first_belief(self, rows: int) -> Exposure:
        """Cancelled tasks count."""
        return Exposure.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> RestPlan:
        """Nobody was tried."""
        return RestPlan(np.full((rows, self.setting.n), np.inf), np.tile(np.arange(self.m), (rows, 1)))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Draw where a round begins; then go by the rule."""
        fresh = self.begins(seen)[:, None]
        if fresh.any():
            belief: Exposure = state.belief
            drawn = draw_means(belief.counts, belief.busy, 1.0, state.round_keys(), prior=1.0)
            drawn = np.where(belief.untried(), np.inf, np.maximum(drawn, 1e-300))
            order = np.argsort(drawn, axis=1, kind="stable")[:, : self.m]
            plan = RestPlan(np.where(fresh, drawn, state.plan.mean), np.where(fresh, order, state.plan.order))
            state = state._replace(plan=plan)
        mean, order = state.plan
        action = by_rest(mean, order, self.kappa, seen["missing"][:, 0], seen["running"], seen["age"])
        return np.where(np.isinf(mean), 1, action), state


class RestOracle(_Rest):
    """The rule of ``Rest`` with the true means, for the same hyperparameters.

    A round costs ten of ATA's, as it is B decisions.
    """

    source = "ours"
    knows = "the means"
    assumes = "nothing"

    def __init__(self, setting: Setting, *, m: int | None = None, kappa: float = 0.8, seed: int = 0) -> None:
        super().__init__(setting, m=m, kappa=kappa, seed=seed)
        self.mean = np.maximum(known_pool(setting, "dispatch-rest-oracle").mean(), 1e-300)
        self.order = np.argsort(self.mean, kind="stable")[: self.m]

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Go by the rule."""
        at = seen["missing"][:, 0], seen["running"], seen["age"]
        return by_rest(self.mean, self.order, self.kappa, *at).astype(np.int64), state
