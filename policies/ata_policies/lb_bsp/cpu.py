"""LB-BSP in CPU clusters: loads in proportion to predicted speeds, with any predictor.

Chen, Weng, Wang, B. Li and B. Li, "Semi-dynamic load balancing: efficient distributed learning in non-dedicated
environments", SoCC 2020 (TCC 11(1), 2023). From the paper: a worker's load is set anew after each iteration; a batch
takes time in proportion to its size; a NARX network predicts the speed. Ours: the integer rounding (the exact optimum),
the minimum load, all constants, and the use of availability (the journal version names federated learning).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import kernel
from ata_gym.utils.validation import flag, unknown, whole_number
from ata_policies.beliefs.availability import Availability
from ata_policies.facts import Described
from ata_policies.lb_bsp.narx import Narx
from ata_policies.lb_bsp.predictors import SIGNALS, Ema, Last, LastRound, Linear, Median, Predictor
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

PREDICTORS: Mapping[str, type[Predictor]] = {"last": Last, "ema": Ema, "median": Median, "linear": Linear, "narx": Narx}
_FORECASTS = ("speed", "time")


class Probes(Described):
    """Workers that owe results get nothing but a probe at intervals."""

    source = "with probes of ours"
    constants = "probes after 2 to 16 rounds"
    assumes = "workers without a result stay away for some rounds"


class LoadPlan(NamedTuple):
    """What LB-BSP keeps from round to round."""

    prediction: Any  # what the predictor remembers, with its prediction in the field ``forecast``, (E, n)
    availability: Availability | tuple[()]  # an empty tuple if all workers count as available


class LbBsp(AllocationPolicy):
    """LB-BSP for CPU clusters: loads in proportion to predicted speeds, that is, min max of load / speed.

    In each round the integers a_i minimise the largest a_i / v_i, where v_i is the predicted speed of worker i: it is
    ``allocate`` with scores 1 / v_i. Workers never tried come first. A worker without a task keeps its prediction. In
    LB-BSP every worker has some load, so each has at least ``least`` tasks; they are taken from the workers that would
    finish last, so that the optimum under this bound is exact.

    With ``availability``, a worker that gave fewer results than it had tasks is away, and the others share the budget
    (``Availability``). A probe is one task, and at most half the budget goes to probes.

    - ``predictor``, ``hyperparameters``: "last", "ema", "median", "linear" or "narx", with its hyperparameters. A round
      with "narx" costs about 28 times as much as one of ATA, because the network is trained.
    - ``forecast``: what is predicted: "speed", results per unit of time in a round; or "time", the mean task time in a
      round.
    - ``least``: the least number of tasks of every worker, where B >= n ``least``; it is smaller otherwise.
    - ``availability``, ``pause``, ``longest``: whether workers may be away, and the rounds between two probes, at first
      and at most.

    >>> import gymnasium, ata_gym
    >>> from ata_gym.pools import deterministic
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=deterministic([1.0, 2.0, 40.0]), budget=9)
    >>> policy = LbBsp(Setting.of(env), predictor="ema", weight=0.5)
    >>> first, state = policy.predict(env.reset(seed=0)[0])
    >>> second, _ = policy.predict(env.step(first)[0], state)
    >>> first, second
    (array([3, 3, 3]), array([6, 2, 1]))
    """

    belief = LastRound
    nonstationary = True
    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "one task at least"

    def __init__(
        self, setting: Setting, *, predictor: str = "ema", forecast: str = "speed", least: int = 1,
        availability: bool = False, pause: int = 2, longest: int = 16, seed: int = 0, **hyperparameters: Any,
    ) -> None:  # fmt: skip
        super().__init__(setting, seed=seed)
        if predictor not in PREDICTORS:
            raise unknown("predictor", str(predictor), PREDICTORS)
        if forecast not in _FORECASTS:
            raise unknown("forecast", str(forecast), _FORECASTS)
        self.predictor = PREDICTORS[predictor](**hyperparameters)
        self.forecast, self.availability = forecast, flag("availability", availability)
        self.least = min(whole_number("least", least, least=0), setting.budget // setting.n)
        self.pause, self.longest = whole_number("pause", pause), whole_number("longest", longest, least=pause)

    def first_plan(self, rows: int) -> LoadPlan:
        n = self.setting.n
        prediction = self.predictor.start(rows, n, self.seed)
        return LoadPlan(prediction, Availability.full(rows, n, self.pause) if self.availability else ())

    def about(self) -> str:
        return f"LB-BSP: predictor {type(self.predictor).__name__}, of each worker's {self.forecast}"

    def plan_in_words(self, state: State, row: int) -> str:
        return "workers that owe results get nothing but a probe at intervals" if self.availability else ""

    def estimated(self, state: State) -> tuple[Floats, Floats]:
        """The predicted mean task times, NaN for a worker never seen, and all results so far."""
        forecast: Floats = state.plan.prediction.forecast
        with np.errstate(divide="ignore"):
            return forecast if self.forecast == "time" else 1.0 / forecast, state.belief.counts

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        prediction, availability = state.plan
        sample = state.belief.speed() if self.forecast == "speed" else 1.0 / state.belief.speed()
        shape = (*sample.shape, SIGNALS)
        signal = np.reshape(seen["signal"], shape) if "signal" in seen else np.zeros(shape)
        prediction = self.predictor.advance(prediction, sample, signal)
        if self.availability:
            availability = availability.after(state.belief.tasks, self.pause, self.longest)
        allocation = self.allocate(state._replace(plan=LoadPlan(prediction, availability)))
        if self.availability:
            availability = availability._replace(asked=allocation)
        return allocation, state._replace(plan=LoadPlan(prediction, availability))

    def allocate(self, state: State) -> Ints:
        budget, untried, (times, _) = self.setting.budget, state.belief.untried(), self.estimated(state)
        scores, available, least = np.where(np.isnan(times), 0.0, times), None, np.asarray(self.least)
        if self.availability:
            away, available = state.plan.availability.away, ~state.plan.availability.away
            probed = away & (state.plan.availability.wait == 0)
            probed &= np.cumsum(probed, axis=1) <= max(1, budget // 2)
            nothing_known = (untried | away).all(axis=1, keepdims=True)  # no available worker was tried
            scores = np.where(nothing_known & available, 1.0, scores)
            least = np.where(away, probed, least)
        allocation = allocate(scores, budget, state.round_keys(), untried, available)
        return np.asarray(raised(allocation, scores, np.broadcast_to(least, allocation.shape)))


@kernel("(n),(n),(n)->(n)")
def raised(allocation: Ints, scores: Floats, least: Ints, out: Ints) -> None:
    """Raise workers below their minimum to it, with the tasks that would finish last, as far as there are any.

    A minimiser of max a_i s_i becomes one under a_i >= ``least``: tasks were handed out in the order in which they
    would finish, so the tasks that are still handed out by speed are the first of them.
    """
    n = len(out)
    out[:] = allocation
    for i in range(n):
        while out[i] < least[i]:  # one more in each pass
            giver, latest = -1, -1.0
            for j in range(n):
                if out[j] > least[j] and out[j] * scores[j] >= latest:
                    giver, latest = j, out[j] * scores[j]
            if giver < 0:
                return
            out[giver] -= 1
            out[i] += 1
