"""LB-BSP for clients that come and go, as in federated learning: our design.

The journal version of LB-BSP (Chen et al., TCC 11(1), 2023) names federated learning, but how it tunes loads there is
not known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.checks import whole_number
from ata_gym.simulation import Ints
from ata_policies.attendance import Attendance
from ata_policies.lb_bsp import LbBsp, raised, task_times
from ata_policies.policy import Observation, Setting, State
from ata_policies.predictors import Predictor

_NEVER = float(np.finfo(np.float64).max)  # the score of a worker that shall get nothing


class Plan(NamedTuple):
    """What the predictor remembers, and who is there."""

    memory: Any
    roll: Attendance


class LbBspFederated(LbBsp):
    """LB-BSP for clients that come and go: those that owe results get nothing but a probe now and then (ours).

    A client that gave fewer results than it had tasks is away, for others had to do its work after the deadline. While
    it is away, others share the budget by predicted speed. After ``pause`` rounds it gets one task, and is back if the
    result comes; if not, the pause doubles, up to ``longest``, for a vain probe costs everybody the deadline. At most
    half the budget goes to probes, and if nobody seems to be there everybody is asked.

    Parameters
    ----------
    setting
        What the policy may know.
    predictor, least, seed
        As in ``LbBsp``.
    pause, longest
        Rounds between two probes, at first and at most.
    """

    source = "ours, after Chen et al., LB-BSP, SoCC 2020"
    constants = "probes after 2 to 16 rounds; weight 0.2"
    assumes = "clients without a result stay away for some rounds"

    def __init__(
        self,
        setting: Setting,
        *,
        predictor: str | Predictor = "ema",
        least: int = 1,
        pause: int = 2,
        longest: int = 16,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, predictor=predictor, least=least, seed=seed)
        self.pause, self.longest = whole_number("pause", pause), whole_number("longest", longest, least=pause)

    def first_plan(self, rows: int) -> Plan:
        """Everybody is there."""
        return Plan(super().first_plan(rows), Attendance.full(rows, self.setting.n, self.pause))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Call the roll, predict, and allocate."""
        memory = self.predictor.advance(state.plan.memory, state.belief.speed(), self.signal(seen))
        roll = state.plan.roll.after(state.belief.tasks, self.pause, self.longest)
        state = state._replace(plan=Plan(memory, roll))
        allocation = self.allocate(state)
        return allocation, state._replace(plan=Plan(memory, roll._replace(asked=allocation)))

    def allocate(self, state: State) -> Ints:
        """Share the budget among those who are there, but for the probes."""
        roll, untried = state.plan.roll, state.belief.untried()
        probed = roll.away & (roll.wait == 0)
        probed &= np.cumsum(probed, axis=1) <= max(1, self.setting.budget // 2)
        scores = task_times(state.plan.memory.forecast)
        strangers = (untried | roll.away).all(axis=1, keepdims=True)  # nothing tells those who are there apart
        scores = np.where(roll.away, _NEVER, np.where(strangers, 1.0, scores))
        allocation = allocate(scores, self.setting.budget, state.round_keys(), untried)
        return raised(allocation, scores, np.where(roll.away, probed, self.least))
