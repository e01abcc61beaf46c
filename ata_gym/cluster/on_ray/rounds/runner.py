"""Rounds on a Ray cluster whose workers may fail, allocated by a policy."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ata_gym.cluster.on_ray.rounds.actor import MakeTask
from ata_gym.cluster.on_ray.rounds.actor_group import ActorGroup, TaskResult, WorkerLoss
from ata_gym.cluster.on_ray.rounds.task_round import SampleQueue, TaskRound
from ata_gym.cluster.on_ray.rounds.worker_actor import with_options
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.typing import Worker
from ata_gym.utils.validation import flag, short, whole_number
from ata_policies import Allocator, Dispatcher
from ata_policies.policy import Policy


@dataclass(frozen=True)
class RayRound:
    """The results of one round, ordered by sample."""

    values: tuple[Any, ...]
    """The values of the samples, shape (B,)."""
    indices: tuple[int, ...]
    """The samples to which the values belong, shape (B,)."""
    workers: tuple[Worker, ...]
    """The workers that computed them, shape (B,)."""
    record: RoundRecord
    """The number of tasks of each worker, and all times."""


class RayRunner(AbstractContextManager["RayRunner"]):
    """Runs rounds of B tasks on the actors of a Ray cluster.

    A policy decides how many tasks each worker computes. Every round gives exactly B results of its
    own payload; later results are dropped. A task takes the smallest free index of a sample when it
    starts, and the index of a task that is cancelled or lost is free again. So round k of the mode
    "allocation" has the samples kB to kB + B - 1; in a race and in dispatch each index is used once
    over a run, in nearly their order.

    If this process has not joined a Ray cluster, it calls ``ata_gym.cluster.connect_ray()``. NaN
    and infinities are found in numbers, arrays and tensors, nested in tuples, lists and mappings.
    Times are measured in the actors, from the beginning of the task itself. What a worker's first
    task of the round needs besides, in Ray's queues and for the payload's transfer, is by the
    driver's clock, and in the mode "allocation" the policy learns it as the worker's latency; in a
    race and in dispatch it is part of the round time only. An actor has at most one task that
    runs and one that waits.

    Args:
        make_task: Called once in each actor, as ``make_task(worker)``; there it can load data and
            build a model. It returns the task function, called as ``task(payload, index)``: its
            result is the value of sample ``index``, such as the gradient under the weights in
            ``payload``, which it must not change. A long task of a race should ask
            ``ata_gym.cluster.cancelled()`` between its steps.
        workers: Their number, their names, or a dict of Ray's actor options by name, such as
            ``{"num_gpus": 1}``, resources, a placement strategy or a ``runtime_env``. A worker has
            one CPU unless its options say otherwise.
        budget: The number B of results that a round needs.
        policy: The policy, as for ``ata_policies.Allocator``, or for ``Dispatcher`` in the mode
            "dispatch".
        mode: "allocation": the policy shares out B tasks. "race": it may share out more, the round
            ends with the B-th result, and the rest is cancelled. "dispatch": at each result it
            decides which workers start one more task.
        price: What one unit of worker time costs, as for ``ata_policies.Allocator``.
        seed: The seed of the policy's draws.
        horizon: The number of rounds, as for ``ata_policies.Allocator``.
        deadline: Seconds after which a task without an answer counts as hung, its actor is killed,
            and the worker is named in the log ``ata_gym.cluster``. None: never. "learned": five
            times the .99 quantile of the worker's answers.
        restarts: How many actors of a worker in a row may be lost without a result before it is
            left out. The first is replaced as soon as Ray finds room, the others after pauses of 1,
            2, 4, ... and at most 60 seconds; what the policy knows of the worker is kept.
        start_timeout: Seconds that the first round waits for all workers. Any round waits for a
            worker as long as an actor is starting; if no node of the cluster is large enough for
            any actor, no longer than this.
        allow_nonfinite: Whether values may hold NaN or infinities; if not, a worker that computes
            such a value ends the round with an error.
        warm_up: The rounds with results of a worker, after each start of its actor, whose times do
            not count, as for ``ata_policies.Allocator``. By default none, since ``make_task`` can
            compute a task beforehand.
        propensities: Whether each record has the propensities of its allocation, for a trace: a
            policy that draws, such as "thompson", decides 999 times more before a round. Only in
            the mode "allocation", since a trace does not have the tasks that are cancelled.
        hyperparameters: Other arguments of ``ata_policies.Allocator`` or ``Dispatcher``, also
            ``limits`` and ``prior``.

    Raises:
        ValueError: For bad arguments.
    """

    rounds: int = 0
    """The number of rounds so far, over restarts."""

    def __init__(
        self,
        make_task: MakeTask,
        workers: int | Iterable[Worker] | Mapping[Worker, Mapping[str, Any]],
        budget: int,
        policy: str | Policy = "default",
        *,
        mode: str = "allocation",
        price: float = 0.0,
        seed: int = 0,
        horizon: int | None = None,
        deadline: float | str | None = None,
        restarts: int = 5,
        start_timeout: float = 60.0,
        allow_nonfinite: bool = False,
        warm_up: int = 0,
        propensities: bool = False,
        **hyperparameters: Any,
    ) -> None:
        if mode not in ("allocation", "race", "dispatch"):
            raise ValueError(f'mode must be "allocation", "race" or "dispatch", not {short(mode)}')
        self._with_propensities = flag("propensities", propensities)
        if propensities and mode != "allocation":
            raise ValueError(
                'propensities are of rounds whose tasks are all run: take mode="allocation", not'
                f" {short(mode)}, or leave propensities out",
            )
        options = with_options(workers)
        self.mode = mode
        settings: dict[str, Any] = {
            "price": price,
            "seed": seed,
            "horizon": horizon,
            "warm_up": warm_up,
            **hyperparameters,
        }
        self._decider: Allocator | Dispatcher
        if mode == "dispatch":
            self._decider = Dispatcher(options, budget, policy, **settings)
        else:
            self._decider = Allocator(
                options,
                budget,
                policy,
                start_more=mode == "race",
                **settings,
            )
        self._actors = ActorGroup(
            make_task,
            options,
            deadline=deadline,
            restarts=restarts,
            start_timeout=start_timeout,
            allow_nonfinite=allow_nonfinite,
        )
        self._samples = SampleQueue()
        # The number of actors of each worker whose starts the policy was told.
        self._starts: Mapping[Worker, int] = {}
        self._closed = False

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that are present."""
        return self._actors.present

    @property
    def away(self) -> dict[Worker, str]:
        """The workers that are away, and why."""
        return self._actors.away

    def round(self, payload: Any = None) -> RayRound:
        """Run a round.

        An error that a task function raises is raised here, with a note that names the worker.
        After any error the runner is as it was before: the next call runs this round again, with
        the same samples.

        Args:
            payload: What each task of the round gets; it is put in Ray's object store once.

        Raises:
            FloatingPointError: For a value with NaN or an infinity; a note names the worker.
            RuntimeError: If no worker is there, and none comes.
            ValueError: If the runner is closed.
        """
        if self._closed:
            raise ValueError("this runner is closed: make another one")
        self._actors.gather()
        # A round that fails is taken back, so that the next call decides it again.
        previous_decider = copy.copy(self._decider)
        previous_starts = self._starts
        tasks = None
        try:
            self._update_presence()
            shares: Mapping[Worker, int] = {}
            propensities = None
            if isinstance(self._decider, Allocator):
                shares = self._decider.allocate()
                if self._with_propensities:
                    propensities = self._decider.propensities()
            estimates = self._decider.expected_times()
            tasks = TaskRound(self._actors, self._samples, self._decider.budget, payload)
            if isinstance(self._decider, Allocator):
                self._run_shares(tasks, shares, self._decider)
            else:
                self._run_dispatched(tasks, self._decider)
            record = tasks.record(self.rounds + 1, estimates, propensities)
            indices = tuple(sorted(tasks.results))
            workers, values = zip(*(tasks.results[index] for index in indices), strict=True)
            self._samples = tasks.samples
            self.rounds += 1
        except BaseException:
            self._decider = previous_decider
            self._starts = previous_starts
            if tasks is not None:
                tasks.abandon()
            raise
        return RayRound(values, indices, workers, record)

    def join(self, worker: Worker, options: Mapping[str, Any] | None = None) -> None:
        """Add a worker, or take one back; it takes part as soon as its actor has started.

        Args:
            worker: The worker's name.
            options: Ray's options of its actor; by default the options that it had.

        Raises:
            ValueError: If it has not left, or the policy cannot be made for one worker more.
        """
        # A copy is asked first, so that nothing has changed if the policy cannot take the worker.
        if worker not in self._decider.workers:
            copy.copy(self._decider).join(worker)
        self._actors.add(worker, options)

    def leave(self, worker: Worker) -> None:
        """Remove a worker: its actor is killed, and the policy keeps its belief of it.

        Raises:
            ValueError: If there is no such worker.
        """
        self._actors.remove(worker)

    def state_dict(self) -> dict[str, Any]:
        """What the policy learned, the number of rounds and the samples to come.

        It is made of text, and of numbers in nested lists.
        """
        return {"rounds": self.rounds, **self._samples.state_dict(), **self._decider.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the ``state_dict`` of a runner with the same arguments.

        The workers may differ.

        Raises:
            ValueError: If it does not fit, and nothing changes.
        """
        samples = SampleQueue.from_state_dict(state)
        rounds = whole_number("rounds", state.get("rounds"), least=0)
        self._decider.load_state_dict(state)
        self._starts = {}
        self._samples = samples
        self.rounds = rounds

    def close(self) -> None:
        """Kill the actors; Ray goes on."""
        self._closed = True
        self._actors.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _update_presence(self) -> None:
        """Tell the policy which workers are present, and which have a new actor."""
        ready = self._actors.present
        policy_workers = self._decider.workers
        for worker in ready:
            if worker not in policy_workers:
                self._decider.join(worker)
        for worker in policy_workers:
            if worker not in ready:
                self._decider.leave(worker)
        for worker in self._new_starts():
            self._decider.restarted(worker)
        self._starts = {**self._starts, **self._actors.starts}

    def _new_starts(self) -> set[Worker]:
        """The present workers with an actor whose start the policy was not told."""
        return {
            worker
            for worker, number in self._actors.starts.items()
            if self._starts.get(worker) != number
        }

    def _run_dispatched(self, tasks: TaskRound, dispatcher: Dispatcher) -> None:
        round_over = False
        while not round_over:
            self._actors.wait_for_worker()
            self._update_presence()
            for worker in dispatcher.start():
                tasks.give(worker, 1)
            event = tasks.next()
            if isinstance(event, TaskResult):
                # The last result ends the round: the other tasks are cancelled.
                if dispatcher.missing == 1:
                    tasks.close()
                    ages = tasks.cancelled
                else:
                    ages = tasks.ages()
                round_over = dispatcher.finished(event.task.worker, event.seconds, ages)
            elif isinstance(event, WorkerLoss):
                if event.worker in dispatcher.running:
                    dispatcher.lost(event.worker, event.seconds)
                # The worker leaves before its new actor comes, and may start again in this round.
                self._update_presence()

    def _run_shares(
        self,
        tasks: TaskRound,
        shares: Mapping[Worker, int],
        allocator: Allocator,
    ) -> None:
        """Run a round of an allocation or a race, from which the policy learns."""
        for worker, share in shares.items():
            tasks.give(worker, share)
        tasks.run()
        tasks.close()
        cancelled = {
            worker: seconds
            for worker, seconds in tasks.cancelled.items()
            if tasks.allocation.get(worker)
        }
        # A worker may have been lost after its tasks, and have a new actor by now.
        lost = self._new_starts() & set(allocator.workers) | tasks.lost.keys()
        # In a race, a worker that was cancelled before its first result has no latency yet.
        if self.mode == "allocation" and not cancelled:
            latency = tasks.latency
        else:
            latency = None
        allocator.observe(tasks.seconds, cancelled, tuple(lost), latency)
