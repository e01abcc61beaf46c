"""Dispatch by the expected rest of the round against a worker's mean time, which is learned."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import inlined, kernel
from ata_gym.utils.ranges import Order, Within
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.moments import Exposure
from ata_policies.observations import Observation, round_progress
from ata_policies.policy import DispatchPolicy, State
from ata_policies.setting import Setting

_SHORTEST_MEAN = 1e-300  # a mean time of 0 counts as this
# the least share of its mean time for which a task goes on, whatever its age
_LEAST_SHARE_LEFT = 0.3


@inlined
def _schedule(due: Floats, first_time: float, interval: float) -> None:
    """Insert a worker's results into ``due``, the sorted times of the earliest results.

    The first is at the time ``first_time``, and the others follow at each ``interval``.
    """
    last = len(due) - 1
    result = first_time
    for _ in range(len(due)):
        if not result < due[last]:
            break
        place = last
        while place > 0 and due[place - 1] > result:
            due[place] = due[place - 1]
            place -= 1
        due[place] = result
        result += interval


@kernel("(n),(m),(),(),(n),(n)->(n)")
def by_remaining_time(
    mean: Floats,
    order: Ints,
    kappa: Floats,
    missing: Ints,
    running: Bits,
    age: Floats,
    out: Bits,
) -> None:
    """Start idle worker i if the rest of the round is at least kappa of its mean time, (E, n).

    The rest is predicted by a schedule: every running worker finishes its task after what is
    expected to be left of it, and then one task after the other, each taking its mean time; the
    round ends when as many results as are missing are in.

    A task of age a is expected to go on for max(mean - a, 0.3 mean).

    Args:
        mean: (E, n) mean task times.
        order: (E, m) the workers that may be started, fastest first.
        kappa: (E,), or one, the share of its mean time that a worker needs.
        missing: (E,) results that the round needs.
        running: (E, n) 1 for workers that run a task.
        age: (E, n) how long their task has run.
        out: (E, n) what is returned.
    """
    # the times of the earliest results, as many as are missing: the last one ends the round
    due = np.full(missing[0], math.inf)
    for i in range(len(mean)):
        out[i] = running[i]
        if running[i] != 0:
            _schedule(due, max(mean[i] - age[i], _LEAST_SHARE_LEFT * mean[i]), mean[i])
    for i in order:
        if running[i] == 0 and due[-1] >= kappa[0] * mean[i]:
            out[i] = 1
            _schedule(due, mean[i], mean[i])


class RemainingTimePlan(NamedTuple):
    """What is fixed within a round."""

    mean: Annotated[Floats, Within(_SHORTEST_MEAN, math.inf)]
    """(E, n) mean times as drawn; infinite for workers never tried."""
    order: Order
    """(E, m) the fastest workers, in order."""


class DispatchRest(DispatchPolicy[Exposure, RemainingTimePlan]):
    """An idle worker of the m fastest starts if the rest of the round is long enough.

    That is, if the expected rest is at least kappa of the worker's mean time. The rule is
    ``by_remaining_time``. The means are drawn where a round begins, as in Thompson sampling
    (``draw_means``), from results and from the time spent on them and on cancelled tasks; workers
    never tried work until the first round's end, beside the others. A round costs more than 5 times
    what one of ATA costs, because it is B decisions. Ours.

    Args:
        m: How many workers may work, at least 1, by default B / 3, rounded down.
        kappa: The share of its mean time that a worker needs, at least 0.
    """

    belief = Exposure
    constants = "m = B / 3, kappa = 0.8"
    source = "ours; Thompson, 1933, for the draws"
    assumes = (
        "exponential times in its draws only: it explores longer than needed where times vary less"
    )

    def __init__(
        self,
        setting: Setting,
        *,
        m: int | None = None,
        kappa: float = 0.8,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        if m is None:
            most_workers = max(1, setting.budget // 3)
        else:
            most_workers = whole_number("m", m)
        self.m = min(most_workers, setting.n)
        self.kappa = non_negative("kappa", kappa)

    def first_plan(self, rows: int) -> RemainingTimePlan:
        return RemainingTimePlan(
            np.full((rows, self.setting.n), np.inf),
            np.tile(np.arange(self.m), (rows, 1)),
        )

    def act(
        self, state: State[Exposure, RemainingTimePlan], observation: Observation
    ) -> tuple[Ints, State[Exposure, RemainingTimePlan]]:
        fresh = self.begins(observation)[:, None]
        if fresh.any():
            belief = state.belief
            drawn_means = draw_means(belief.counts, belief.busy, 1.0, state.round_keys(), prior=1.0)
            drawn_means = np.where(
                belief.untried(), np.inf, np.maximum(drawn_means, _SHORTEST_MEAN)
            )
            order = np.argsort(drawn_means, axis=1, kind="stable")[:, : self.m]
            plan = RemainingTimePlan(
                np.where(fresh, drawn_means, state.plan.mean),
                np.where(fresh, order, state.plan.order),
            )
            state = state._replace(plan=plan)
        mean, order = state.plan
        by_rule = by_remaining_time(mean, order, self.kappa, *round_progress(observation))
        # A worker that was never tried is always started.
        return np.where(np.isinf(mean), 1, by_rule), state
