"""A sweep on a Ray cluster, whose nodes play the jobs.

This process keeps the results and the checkpoints. Ray places the jobs, and tries a job again if
its node or process was lost. The nodes share no file system with this process.
"""

import os
import pickle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ata_gym.bench.runner.jobs import KilledError, Outcomes, Progress
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.store.folder import begin, discard, write_frame_content
from ata_gym.cluster.on_ray.connection import connected
from ata_gym.cluster.on_ray.sweeps import node
from ata_gym.utils.files.sealed import has_checkpoint, load_checkpoint, save_checkpoint
from ata_gym.utils.process.signals import stop_requested

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables from which numerical libraries read how many threads they may use."""

_LOOK_EVERY = 0.2
"""The seconds between two readings of the state."""

_STOPS_WITHIN = 20.0
"""The seconds in which jobs that are asked to stop may save a checkpoint."""


def play_on_ray(
    jobs: list[Job],
    processes: int | None,
    save_every: float,
    progress: Progress,
    *,
    address: str | None = None,
) -> Outcomes:
    """Play jobs on the nodes of a Ray cluster, as a runner of ``jobs.play_jobs``.

    Each job takes one CPU. A job begins at the checkpoint in its folder, and later checkpoints are
    written there, so that a local run may go on from it, and the reverse. If its process is killed
    again and again on one node, without a new checkpoint, it fails with a KilledError.

    Args:
        jobs: The jobs.
        processes: How many jobs run at once; by default one for each CPU.
        save_every: The seconds between two checkpoints of a job.
        progress: Called with a job and the number of its rounds that were played.
        address: The address of the cluster, as for ``connect_ray``.

    Raises:
        ValueError: If there is no cluster at the address, or a node has other code than this
            machine.
        ConnectionError: If the cluster is lost; the jobs go on from their checkpoints when they are
            played again.
    """
    if not jobs:
        return
    with stop_requested() as stop, connected(address, processes) as ray:
        try:
            yield from _Sweep(ray, jobs, save_every, progress).outcomes(
                processes or len(jobs),
                stop,
            )
        except ray.exceptions.RayError as error:
            raise ConnectionError(
                f"the Ray cluster was lost ({error}); the same command goes on from here",
            ) from error


class _Sweep:
    """The jobs of a sweep, and the tasks of Ray that play them."""

    def __init__(self, ray: Any, jobs: list[Job], save_every: float, progress: Progress) -> None:
        self.ray = ray
        self.jobs = jobs
        self.save_every = save_every
        self.progress = progress
        self.running: dict[Any, int] = {}
        """The places of the running jobs, by Ray's references to their outcomes."""
        # Each experiment is sent once: some hold many megabytes of recorded times.
        self.sent: dict[bytes, Any] = {}
        self.threads = {name: os.environ.get(name) for name in _THREADS}
        contents = {
            place: load_checkpoint(_checkpoint(job), bytes) for place, job in enumerate(jobs)
        }
        checkpoints = {place: content for place, content in contents.items() if content is not None}
        # The nodes get the code itself, since they may have another ata-gym.
        ray.cloudpickle.register_pickle_by_value(node)
        # The state is on the node of this process: it must outlive the other nodes.
        node_id = ray.get_runtime_context().get_node_id()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id,
            soft=False,
        )
        self.state = (
            ray.remote(node.SweepState)
            .options(num_cpus=0, scheduling_strategy=strategy)
            .remote(checkpoints)
        )
        self.play = ray.remote(node.play_on_node).options(num_cpus=1, max_retries=-1)

    def outcomes(self, at_once: int, stop: Callable[[], bool]) -> Outcomes:
        """Yield the jobs with their outcomes as they end, until ``stop`` returns True."""
        waiting = deque(range(len(self.jobs)))
        try:
            while (waiting or self.running) and not stop():
                while waiting and len(self.running) < at_once:
                    self._start(waiting.popleft())
                ended, _ = self.ray.wait(list(self.running), timeout=_LOOK_EVERY)
                self._read()
                for task in ended:
                    place = self.running.pop(task)
                    outcome = self._outcome(self.jobs[place], task)
                    self.state.forget.remote(place)
                    yield self.jobs[place], outcome
        finally:
            if self.running:
                # The cluster may have ended, too: what came is kept.
                with suppress(self.ray.exceptions.RayError):
                    self._stop()

    def _start(self, place: int) -> None:
        """Give the job of a place to Ray."""
        job = self.jobs[place]
        made_by = job.product().by
        # The same code may have no commit on a node.
        needed = {key: value for key, value in made_by.items() if key != "commit"}
        needed["machine"] = made_by["machine"].partition(",")[0]
        content = pickle.dumps((job.experiment, job.run_of))
        if content not in self.sent:
            self.sent[content] = self.ray.put(content)
        job_arguments = job.policy, job.run_of.__module__, needed
        settings = self.threads, self.save_every
        outcome = self.play.remote(
            self.state,
            place,
            *job_arguments,
            *settings,
            self.sent[content],
        )
        self.running[outcome] = place

    def _read(self, timeout: float | None = None) -> None:
        """Read the state: report the rounds played, and keep new checkpoints."""
        rounds, checkpoints = self.ray.get(self.state.read.remote(), timeout=timeout)
        for place in self.running.values():
            job = self.jobs[place]
            if place in rounds:
                self.progress(job, rounds[place])
            if place in checkpoints:
                path = _checkpoint(job)
                if not has_checkpoint(path):
                    begin(path, job.product().by)
                save_checkpoint(path, checkpoints[place])

    def _outcome(self, job: Job, task: Any) -> float | Exception | None:
        """The seconds of a job whose results are kept, its error, or None if it was stopped."""
        try:
            answer = self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            failure: Exception
            if isinstance(error.cause, Exception):
                failure = error.cause
            else:
                failure = error
            return failure
        if answer is None:
            return None
        if "refused" in answer:
            raise ValueError(
                f"the node {answer['node']} has other code than this machine: {answer['refused']};"
                " install the same versions there, or submit the whole command: ray job submit"
                " --working-dir . -- ata-gym ...",
            )
        if "killed" in answer:
            return KilledError()
        made_by = {**job.product().by, "machine": answer["machine"]}
        if answer["allocations"] is not None:
            path = job.folder.allocations(job.policy)
            path.parent.mkdir(exist_ok=True)
            write_frame_content(path, answer["allocations"], made_by)
        write_frame_content(job.folder.result(job.policy), answer["result"], made_by)
        discard(_checkpoint(job))
        self.progress(job, job.experiment.rounds)
        return float(answer["seconds"])

    def _stop(self) -> None:
        """Stop all jobs, and keep the checkpoints of the jobs that have begun."""
        begun_places = self.ray.get(self.state.stop.remote(), timeout=_STOPS_WITHIN)
        saving_tasks = [task for task, place in self.running.items() if place in begun_places]
        for task in self.running.keys() - set(saving_tasks):
            self.ray.cancel(task)
        self.ray.wait(saving_tasks, num_returns=len(saving_tasks), timeout=_STOPS_WITHIN)
        self._read(_STOPS_WITHIN)
        for task in saving_tasks:
            self.ray.cancel(task, force=True)


def _checkpoint(job: Job) -> Path:
    return job.folder.checkpoint(job.policy)
