"""Learners that trust recent task times: certainty equivalence after a moving average, or a moving median (ours).

They are the plain counterpart of LB-BSP: on times where that averages speeds, and with no minimum load. The last value
alone is the same for times and speeds; ``lb_bsp.LbBsp`` with predictor "last" and ``least`` 0 is that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.simulation import Ints
from ata_policies.policy import AllocationPolicy, Observation, Setting, State
from ata_policies.predictors import SIGNALS, Ema, LastRound, Median, Predictor


class _Recent(AllocationPolicy):
    """Minimises the proxy loss under a predictor's task times; a worker without a task keeps its own."""

    follows = True
    source = "ours"
    assumes = "task times that last a while"

    def __init__(self, setting: Setting, predictor: Predictor, seed: int) -> None:
        super().__init__(setting, seed=seed)
        self.predictor = predictor

    def first_belief(self, rows: int) -> LastRound:
        """No round was played."""
        return LastRound.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> Any:
        """What the predictor remembers."""
        return self.predictor.start(rows, self.setting.n, self.seed)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Take the last round's mean task times in, and allocate."""
        del seen
        nothing = np.zeros((*state.belief.counts.shape, SIGNALS))
        state = state._replace(plan=self.predictor.advance(state.plan, 1.0 / state.belief.speed(), nothing))
        return self.allocate(state), state

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss; untried workers first."""
        times = np.where(state.belief.untried(), 0.0, state.plan.forecast)
        return allocate(times, self.setting.budget, state.round_keys(), state.belief.untried())


class RecentAverage(_Recent):
    """Certainty equivalence after an exponential moving average of each worker's mean task time in a round.

    m <- weight * sample + (1 - weight) m in each round in which the worker had a task. It never tries again a worker
    that looks slow.

    Parameters
    ----------
    setting
        What the policy may know.
    weight
        Weight of the last round.
    seed
        Seeds the choices among untried workers.
    """

    constants = "weight 0.2"

    def __init__(self, setting: Setting, *, weight: float = 0.2, seed: int = 0) -> None:
        super().__init__(setting, Ema(weight), seed)


class RecentMedian(_Recent):
    """Certainty equivalence after the median of each worker's last W mean task times in a round.

    It never tries again a worker that looks slow; a single outlier moves it little.

    Parameters
    ----------
    setting
        What the policy may know.
    window
        W, rounds in which the worker had a task.
    seed
        Seeds the choices among untried workers.
    """

    constants = "W = 5"

    def __init__(self, setting: Setting, *, window: int = 5, seed: int = 0) -> None:
        super().__init__(setting, Median(window), seed)
