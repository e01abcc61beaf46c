"""LB-BSP in CPU clusters: batches in proportion to predicted speeds, with any predictor.

Chen, Weng, Wang, B. Li and B. Li, "Semi-dynamic load balancing: efficient distributed learning in non-dedicated
environments", SoCC 2020 (TCC 11(1), 2023). Known of it: a worker's load is fixed within an iteration and set anew at
its end; a batch takes time in proportion to its size, the slope being one over the speed; the speed is predicted by a
NARX network, to which other predictors are compared. Not known, so ours: the integer rounding (here the exact
optimum), the minimum load and all constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.allocation import allocate
from ata_gym.checks import unknown, whole_number
from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.narx import Narx
from ata_policies.policy import AllocationPolicy, Observation, Setting, State
from ata_policies.predictors import SIGNALS, Ema, LastRound, Linear, Predictor

SOURCE = "Chen et al., LB-BSP, SoCC 2020"
PREDICTORS: Mapping[str, Callable[[], Predictor]] = {
    "last": lambda: Ema(1.0),
    "ema": Ema,
    "linear": Linear,
    "narx": Narx,
}
"""The predictors by name, with their default hyperparameters."""


class LbBsp(AllocationPolicy):
    """LB-BSP for CPU clusters: loads in proportion to predicted speeds, that is, min max of load / speed.

    Each round, a_i minimises the largest a_i / v_i, where v_i is the predicted speed of worker i, in integers: it is
    ``allocate`` with scores 1 / v_i. Workers never tried come first. A worker without a task shows no speed and keeps
    its prediction; in LB-BSP every worker has some load, so here each has at least ``least`` tasks where the budget
    suffices (ours), taken from those which would finish last. The optimum under this bound is exact, too.

    Parameters
    ----------
    setting
        What the policy may know.
    predictor
        "last", "ema", "linear", "narx", or a ``Predictor``.
    least
        Tasks of every worker, at least, where B >= n ``least``; less where not.
    seed
        Seeds the choices among workers never tried, and the network's first weights.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> from ata_gym.pools import deterministic
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=deterministic([1.0, 2.0, 40.0]), budget=9)
    >>> policy = LbBsp(Setting.of(env), predictor="last")
    >>> first, state = policy.predict(env.reset(seed=0)[0])
    >>> second, _ = policy.predict(env.step(first)[0], state)
    >>> first, second
    (array([3, 3, 3]), array([6, 2, 1]))
    """

    follows = True
    source = SOURCE
    constants = "one task at least; 0.2 of the moving average"
    assumes = "speeds that last or are predictable"

    def __init__(self, setting: Setting, *, predictor: str | Predictor = "ema", least: int = 1, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if not isinstance(predictor, Predictor):
            if predictor not in PREDICTORS:
                raise unknown("predictor", str(predictor), PREDICTORS)
            predictor = PREDICTORS[predictor]()
        self.predictor = predictor
        self.least = min(whole_number("least", least, least=0), setting.budget // setting.n)

    def first_belief(self, rows: int) -> LastRound:
        """No round was played."""
        return LastRound.empty(rows, self.setting.n)

    def first_plan(self, rows: int) -> Any:
        """What the predictor remembers."""
        return self.predictor.start(rows, self.setting.n, self.seed)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Predict the coming round's speeds, and allocate by them."""
        state = state._replace(plan=self.predictor.advance(state.plan, state.belief.speed(), self.signal(seen)))
        return self.allocate(state), state

    def signal(self, seen: Observation) -> Floats:
        """The signals of the coming round, shape (E, n, 2); zeros where the env shows none."""
        if "signal" in seen:
            return np.reshape(seen["signal"], (-1, self.setting.n, SIGNALS))
        return np.zeros((len(seen["worker"]), self.setting.n, SIGNALS))

    def allocate(self, state: State) -> Ints:
        """Minimise the predicted round time."""
        scores = task_times(state.plan.forecast)
        allocation = allocate(scores, self.setting.budget, state.round_keys(), state.belief.untried())
        return raised(allocation, scores, self.least)


class LbBspLast(LbBsp):
    """LB-BSP for CPU clusters, expecting each worker to be as fast as in its last round."""

    constants = "one task at least"

    def __init__(self, setting: Setting, *, least: int = 1, seed: int = 0) -> None:
        super().__init__(setting, predictor="last", least=least, seed=seed)


class LbBspEma(LbBsp):
    """LB-BSP for CPU clusters with an exponential moving average of each worker's speed.

    Parameters
    ----------
    setting
        What the policy may know.
    weight
        Weight of the last round.
    least, seed
        As in ``LbBsp``.
    """

    constants = "weight 0.2; one task at least"

    def __init__(self, setting: Setting, *, weight: float = 0.2, least: int = 1, seed: int = 0) -> None:
        super().__init__(setting, predictor=Ema(weight), least=least, seed=seed)


class LbBspLinear(LbBsp):
    """LB-BSP for CPU clusters with a linear autoregression of each worker's speed, and of its signals (ARX).

    See ``predictors.Linear`` for what it minimises. A round costs six times what ATA's does: recursive least squares
    update a matrix for each worker.

    Parameters
    ----------
    setting
        What the policy may know.
    lags, past, ridge
        As in ``predictors.Linear``.
    least, seed
        As in ``LbBsp``.
    """

    constants = "8 lags; 2 rounds of signals; ridge 0.1"
    assumes = "speeds linear in the last ones and in the signals"

    def __init__(
        self, setting: Setting, *, lags: int = 8, past: int = 1, ridge: float = 0.1, least: int = 1, seed: int = 0
    ) -> None:
        super().__init__(setting, predictor=Linear(lags=lags, past=past, ridge=ridge), least=least, seed=seed)


class LbBspNarx(LbBsp):
    """LB-BSP for CPU clusters as in the paper: a NARX network over last speeds, cpu and memory load (needs torch).

    See ``narx.Narx`` for the network. A round costs tens of times what ATA's does: each row's network is trained for
    itself, every 100 rounds.

    Parameters
    ----------
    setting
        What the policy may know.
    lags, past, hidden, window, every
        As in ``narx.Narx``.
    least, seed
        As in ``LbBsp``.

    Raises
    ------
    ata_gym.extras.MissingExtraError
        If torch is not installed.
    """

    constants = "4 lags; 2 rounds of signals; 8 units; the last 1024 samples"
    assumes = "speeds a function of the last ones and of the signals"

    def __init__(
        self,
        setting: Setting,
        *,
        lags: int = 4,
        past: int = 1,
        hidden: int = 8,
        window: int = 1024,
        every: int = 100,
        least: int = 1,
        seed: int = 0,
    ) -> None:
        network = Narx(lags=lags, past=past, hidden=hidden, window=window, every=every)
        super().__init__(setting, predictor=network, least=least, seed=seed)


def task_times(speed: Floats) -> Floats:
    """Predicted times of a task, 1 / speed; 0 for a worker never seen."""
    return np.divide(1.0, speed, out=np.zeros_like(speed), where=~np.isnan(speed))


def raised(allocation: Ints, scores: Floats, least: int | NDArray[Any]) -> Ints:
    """Raise workers below their minimum to it, with the tasks that would finish last; as far as these go.

    From a minimiser of max a_i s_i it makes one under a_i >= ``least``: tasks were handed out in the order in which
    they would finish, so the fewer that are left to hand out by speed are the first of them.

    >>> raised(np.array([[6, 3, 0]]), np.array([[1.0, 1.9, 40.0]]), 1)
    array([[5, 3, 1]])
    """
    after: Ints = _raise(allocation, scores, np.broadcast_to(np.asarray(least, np.int64), allocation.shape))
    return after


@gufunc("void(int64[:], float64[:], int64[:], int64[:])", "(n),(n),(n)->(n)")
def _raise(allocation: Ints, scores: Floats, least: Ints, out: Ints) -> None:
    n = len(out)
    out[:] = allocation
    for i in range(n):
        while out[i] < least[i]:
            giver, latest = -1, -1.0
            for j in range(n):
                if out[j] > least[j] and out[j] * scores[j] >= latest:
                    giver, latest = j, out[j] * scores[j]
            if giver < 0:
                return
            out[giver] -= 1
            out[i] += 1
