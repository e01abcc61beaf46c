"""The rows of an env whose steps are rounds: allocation and race."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.spaces import Allocation, RaceAllocation
from ata_gym.envs.spaces.allocation import checked_tasks
from ata_gym.envs.states.backend import Backend, DispatchBackend, check_round
from ata_gym.envs.states.batch_state import BatchState, StepResult, add_busy_time
from ata_gym.scenarios import Scenario
from ata_gym.simulation.rounds import allocation_round, race_round
from ata_gym.typing import Ints
from ata_gym.utils.validation import short


class AllocationState(BatchState):
    """A step is a round whose allocation sums to B, and every task is run to its end."""

    forms: ClassVar[tuple[str, ...]] = ("allocation", "shares", "assign")
    knows_allocation: ClassVar[bool] = True
    _space: type[Allocation] = Allocation
    _simulate: Backend = staticmethod(allocation_round)

    def __init__(
        self,
        scenario: Scenario,
        rows: int,
        signals: bool = False,
        backend: Backend | DispatchBackend | None = None,
    ) -> None:
        if backend is not None and not callable(backend):
            raise ValueError(
                "backend must be a function that runs a round, called as"
                f" ata_gym.simulation.rounds.race_round is, not {short(backend)}",
            )
        super().__init__(scenario, rows, signals, backend, results=scenario.budget)
        self.backend: Backend = self._simulate if backend is None else backend
        self.result_workers = np.zeros((rows, 0), np.int64)
        """The worker of each result of the last round, (E, B); (E, 0) before the first one."""

    def action_space(self) -> Allocation:
        return self._space(self.scenario.pool.n, self.scenario.budget)

    def check_action(self, action: object, shape: tuple[int, ...]) -> Ints:
        return checked_tasks(action, shape, self.scenario.budget, self._space.exact)

    def step(self, action: NDArray[np.integer[Any]]) -> StepResult:
        budget = self.scenario.budget
        distributions, disturbances = self.process.under(action)
        round_arguments = distributions, self.noise_keys(), action, budget
        if disturbances is None:
            result = self.backend(*round_arguments)
        else:
            result = self.backend(*round_arguments, disturbances)
        if not self.simulated:
            check_round(result, action, budget)
        # A cost per unit of time replaces the sum of the times that workers were busy.
        if self.scenario.unit_costs is not None:
            costs = np.array(self.scenario.unit_costs)
            worker_time = (result.duration * costs[result.worker]).sum(axis=1)
            worker_time = worker_time + (result.elapsed + result.latency) @ costs
            result = result._replace(worker_time=worker_time)
        last_round = None
        if self.scenario.follows_load:
            busy_time = np.zeros(action.shape)
            add_busy_time(busy_time, result.worker, result.duration, result.elapsed, result.latency)
            tasks = result.started - self.started
            last_round = self.last_round(tasks, busy_time, result.round_time)
        self.started = result.started
        self.result_workers = result.worker
        self.runtime += result.round_time
        self.total_worker_time += result.worker_time
        runtime = self.runtime.copy()
        total = self.total_worker_time.copy()
        info = self.info(result.round_time, result.worker_time, result.lost, runtime, total)
        ended = self.next_round(None, last_round)
        observation = self.feedback(result.worker, result.duration, result.elapsed, result.latency)
        return StepResult(observation, result.round_time, result.worker_time, info, ended)

    def info_so_far(self) -> dict[str, NDArray[Any]]:
        round_time = np.zeros(self.rows)
        worker_time = np.zeros(self.rows)
        lost = np.zeros(self.rows, np.int64)
        return self.info(
            round_time,
            worker_time,
            lost,
            self.runtime.copy(),
            self.total_worker_time.copy(),
        )


class RaceState(AllocationState):
    """A step is a round that ends at the B-th result; the rest of the allocation is cancelled."""

    forms: ClassVar[tuple[str, ...]] = ("allocation", "shares")
    knows_allocation: ClassVar[bool] = False
    _space = RaceAllocation
    _simulate = staticmethod(race_round)
