"""Dispatch by the expected remaining time of the round against a worker's mean time, which is learned."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import inlined, kernel
from ata_gym.utils.ranges import Order, Within
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.moments import Exposure
from ata_policies.observations import Observation, at_work
from ata_policies.policy import DispatchPolicy, State
from ata_policies.setting import Setting

_SHORTEST = 1e-300  # a mean time of 0 counts as this
_LEFT = 0.3  # of a task at least this share of its mean time is left, whatever its age


@inlined
def _schedule(due: Floats, first: float, every: float) -> None:
    """Insert a worker's results, the first and then one after each ``every``, into the sorted earliest in ``due``."""
    last = len(due) - 1
    result = first
    for _ in range(len(due)):
        if not result < due[last]:
            break
        at = last
        while at > 0 and due[at - 1] > result:
            due[at] = due[at - 1]
            at -= 1
        due[at] = result
        result += every


@kernel("(n),(m),(),(),(n),(n)->(n)")
def by_remaining_time(
    mean: Floats, order: Ints, kappa: Floats, missing: Ints, running: Bits, age: Floats, out: Bits
) -> None:
    """Start idle worker i if the expected rest of the round is at least ``kappa`` of its mean time, shape (E, n).

    The rest is predicted by a schedule: every running worker finishes its task after what is expected to be left of it,
    and then one task after the other, each taking its mean time; the round ends when as many results as are missing are
    in.

    A task of age a is expected to go on for max(mean - a, 0.3 mean). ``mean`` (E, n) are mean task times; ``order``
    (E, m) the workers that may be started, fastest first; ``missing`` (E,) results that the round needs; ``running``
    and ``age`` (E, n) say who is running a task, and for how long.
    """
    due = np.full(missing[0], math.inf)
    for i in range(len(mean)):
        out[i] = running[i]
        if running[i] != 0:
            _schedule(due, max(mean[i] - age[i], _LEFT * mean[i]), mean[i])
    for i in order:
        if running[i] == 0 and due[-1] >= kappa[0] * mean[i]:
            out[i] = 1
            _schedule(due, mean[i], mean[i])


class RemainingTimePlan(NamedTuple):
    """What is fixed within a round."""

    mean: Annotated[Floats, Within(_SHORTEST, math.inf)]  # (E, n) as drawn; infinite for workers never tried
    order: Order  # (E, m) the fastest, in order


class DispatchRest(DispatchPolicy):
    """An idle worker of the m fastest starts if the expected rest of the round is at least kappa of its mean time.

    The rule is ``by_remaining_time``. The means are drawn where a round begins, as in Thompson sampling
    (``draw_means``), from results and from the time spent on them and on cancelled tasks; workers never tried work
    until the first round's end, beside the others. A round costs more than 5 times what one of ATA costs, because it is
    B decisions. Ours.

    - ``m``, ``kappa``: how many may work, at least 1, by default B / 3, rounded down; and kappa, at least 0.
    """

    belief = Exposure
    constants = "m = B / 3, kappa = 0.8"
    source = "ours; Thompson, 1933, for the draws"
    assumes = "exponential times in its draws only: it explores longer than needed where times vary less"

    def __init__(self, setting: Setting, *, m: int | None = None, kappa: float = 0.8, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.m = min(max(1, setting.budget // 3) if m is None else whole_number("m", m), setting.n)
        self.kappa = non_negative("kappa", kappa)

    def first_plan(self, rows: int) -> RemainingTimePlan:
        return RemainingTimePlan(np.full((rows, self.setting.n), np.inf), np.tile(np.arange(self.m), (rows, 1)))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        fresh = self.begins(seen)[:, None]
        if fresh.any():
            belief: Exposure = state.belief
            drawn = draw_means(belief.counts, belief.busy, 1.0, state.round_keys(), prior=1.0)
            drawn = np.where(belief.untried(), np.inf, np.maximum(drawn, _SHORTEST))
            order = np.argsort(drawn, axis=1, kind="stable")[:, : self.m]
            plan = RemainingTimePlan(np.where(fresh, drawn, state.plan.mean), np.where(fresh, order, state.plan.order))
            state = state._replace(plan=plan)
        mean, order = state.plan
        return np.where(np.isinf(mean), 1, by_remaining_time(mean, order, self.kappa, *at_work(seen))), state
