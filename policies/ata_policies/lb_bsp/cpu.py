"""LB-BSP in CPU clusters: loads in proportion to predicted speeds, with any predictor.

Chen, Weng, Wang, B. Li and B. Li, "Semi-dynamic load balancing: efficient distributed learning in
non-dedicated environments", SoCC 2020 (TCC 11(1), 2023). From the paper: a worker's load is set
anew after each iteration; a batch takes time in proportion to its size; a NARX network predicts the
speed. The integer rounding (the exact optimum), the minimum load, all constants, and the use of
availability are ours (the journal version names federated learning).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, kernel
from ata_gym.utils.validation import flag, unknown, whole_number
from ata_policies.beliefs.availability import Availability
from ata_policies.facts import Described
from ata_policies.lb_bsp.narx import Narx
from ata_policies.lb_bsp.predictors import (
    SIGNALS,
    Ema,
    Forecast,
    Last,
    LastRound,
    Linear,
    Median,
    Predictor,
)
from ata_policies.observations import Observation
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting

PREDICTORS: Mapping[str, type[Predictor[Any]]] = {
    "last": Last,
    "ema": Ema,
    "median": Median,
    "linear": Linear,
    "narx": Narx,
}
_FORECASTS = ("speed", "time")


class Probes(Described):
    """Workers that owe results get nothing but a probe at intervals."""

    source = "with probes of ours"
    constants = "probes by the cost of a late round"
    assumes = "workers without a result stay away for some rounds"


class LoadPlan(NamedTuple):
    """What LB-BSP keeps from round to round."""

    prediction: Forecast
    """What the predictor remembers, with its prediction."""
    availability: Availability | tuple[()]
    """An empty tuple if all workers count as available."""


class LbBsp(AllocationPolicy[LastRound, LoadPlan]):
    """LB-BSP for CPU clusters: loads in proportion to predicted speeds.

    In each round the integers a_i minimise the largest a_i / v_i, where v_i is the predicted speed
    of worker i: the rule is ``allocate`` with scores 1 / v_i. Workers never tried come first. A
    worker without a task keeps its prediction. In LB-BSP every worker has some load, so each has at
    least ``least`` tasks. They are taken from the workers that would finish last, so that the
    optimum under this bound is exact.

    With ``availability``, a worker that gave fewer results than it had tasks is away, and the
    others share the budget (``Availability``). A probe is one task, and at most half the budget
    goes to probes.

    Args:
        predictor: "last", "ema", "median", "linear" or "narx". A round with "narx" costs about 28
            times as much as a round of ATA, because the network is trained.
        forecast: What is predicted: "speed", results per unit of time in a round; or "time", the
            mean task time in a round.
        least: The least number of tasks of every worker, where B >= n ``least``; it is smaller
            otherwise.
        availability: Whether workers may be away.
        seed: The seed of the policy's own randomness.
        hyperparameters: The hyperparameters of the predictor, by name.

    Example:
        >>> import gymnasium, ata_gym
        >>> from ata_gym.pools import deterministic
        >>> pool = deterministic([1.0, 2.0, 40.0])
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=9)
        >>> policy = LbBsp(Setting.from_env(env), predictor="ema", weight=0.5)
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
        self,
        setting: Setting,
        *,
        predictor: str = "ema",
        forecast: str = "speed",
        least: int = 1,
        availability: bool = False,
        seed: int = 0,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(setting, seed=seed)
        if predictor not in PREDICTORS:
            raise unknown("predictor", str(predictor), PREDICTORS)
        if forecast not in _FORECASTS:
            raise unknown("forecast", str(forecast), _FORECASTS)
        self.predictor = PREDICTORS[predictor](**hyperparameters)
        self.forecast = forecast
        self.availability = flag("availability", availability)
        self.least = min(whole_number("least", least, least=0), setting.budget // setting.n)

    def first_plan(self, rows: int) -> LoadPlan:
        n = self.setting.n
        prediction = self.predictor.start(rows, n, self.seed)
        if self.availability:
            return LoadPlan(prediction, Availability.full(rows, n))
        return LoadPlan(prediction, ())

    def about(self) -> str:
        predictor = type(self.predictor).__name__
        return f"LB-BSP: predictor {predictor}, of each worker's {self.forecast}"

    def describe_plan(self, state: State[LastRound, LoadPlan], row: int) -> str:
        if self.availability:
            return "workers that owe results get nothing but a probe at intervals"
        return ""

    def estimated(self, state: State[LastRound, LoadPlan]) -> tuple[Floats, Floats]:
        """Return the predicted mean task times and the numbers of results so far, (E, n) each.

        NaN is the time of a worker never seen.
        """
        forecast: Floats = state.plan.prediction.forecast
        if self.forecast == "time":
            return forecast, state.belief.counts
        with np.errstate(divide="ignore"):
            return 1.0 / forecast, state.belief.counts

    def act(
        self, state: State[LastRound, LoadPlan], observation: Observation
    ) -> tuple[Ints, State[LastRound, LoadPlan]]:
        prediction, availability = state.plan
        if self.forecast == "speed":
            sample = state.belief.speed()
        else:
            sample = 1.0 / state.belief.speed()
        shape = (*sample.shape, SIGNALS)
        if "signal" in observation:
            signal = np.reshape(observation["signal"], shape)
        else:
            signal = np.zeros(shape)
        prediction = self.predictor.advance(prediction, sample, signal)
        if isinstance(availability, Availability):
            availability = availability.observed(
                observation, self.setting.deadline, self.setting.delay
            )
        allocation = self.allocate(state._replace(plan=LoadPlan(prediction, availability)))
        if isinstance(availability, Availability):
            availability = availability._replace(allocation=allocation)
        return allocation, state._replace(plan=LoadPlan(prediction, availability))

    def allocate(self, state: State[LastRound, LoadPlan]) -> Ints:
        budget = self.setting.budget
        untried = state.belief.untried()
        times, _ = self.estimated(state)
        scores = np.where(np.isnan(times), 0.0, times)
        available = None
        least = np.asarray(self.least)
        availability = state.plan.availability
        if isinstance(availability, Availability):
            away = availability.away
            available = ~away
            probed = away & (availability.wait == 0)
            # at most half the budget goes to probes
            probed &= np.cumsum(probed, axis=1) <= max(1, budget // 2)
            # where no available worker was tried, all of them count as equally fast
            none_tried = (untried | away).all(axis=1, keepdims=True)
            scores = np.where(none_tried & available, 1.0, scores)
            least = np.where(away, probed, least)
        allocation = allocate(scores, budget, state.round_keys(), untried, available)
        return np.asarray(raised(allocation, scores, np.broadcast_to(least, allocation.shape)))


@kernel("(n),(n),(n)->(n)")
def raised(allocation: Ints, scores: Floats, least: Ints, out: Ints) -> None:
    """Raise workers below their minimum to it, with the tasks that would finish last.

    They are raised as far as others have tasks above their own minimum. A minimiser of max a_i s_i
    becomes a minimiser under a_i >= ``least``: tasks were handed out in the order in which they
    would finish, so the tasks that are still handed out by speed are the first of this order.

    Args:
        allocation: (n,) tasks a of each worker.
        scores: (n,) mean task times s.
        least: (n,) the least tasks of each worker.
        out: (n,) the raised allocation, of the same sum.
    """
    n = len(out)
    copy(allocation, out)
    for i in range(n):
        # one task more in each pass, from the worker that would finish last
        while out[i] < least[i]:
            giver = -1
            latest = -1.0
            for j in range(n):
                if out[j] > least[j] and out[j] * scores[j] >= latest:
                    giver = j
                    latest = out[j] * scores[j]
            if giver < 0:
                return
            out[giver] -= 1
            out[i] += 1
