"""Actors that are killed in the midst of rounds: every round gives exactly B results of its own,
and no time lies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.waiting import until

SLEEPS = {"a": 0.002, "b": 0.008}
"""How long the tasks of the workers take at least."""
MODES = ("allocation", "race", "dispatch")
DEADLINE = 5.0
"""Seconds without an answer after which a worker counts as lost: more than one that is well needs
on a busy machine.
"""


def attempt(rng: np.random.Generator, folder: Path) -> None:
    del folder
    with (
        local_cluster(),
        watched_runner(str(rng.choice(MODES)), budget=int(rng.integers(1, 9))) as watched,
    ):
        watched.play_with_kills(rng, rounds=60, kills=int(rng.integers(1, 9)), pause=1.5)


@contextlib.contextmanager
def local_cluster() -> Iterator[None]:
    import ray

    from ata_gym.cluster import connect_ray

    quiet = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # the paths of sockets must be short
    try:
        with mock.patch.dict(os.environ, quiet):
            os.environ.pop("RAY_ADDRESS", None)
            connect_ray(num_cpus=2, object_store_memory=80_000_000, _temp_dir=folder)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def watched_runner(mode: str, budget: int = 6) -> Iterator[Watched]:
    from ata_gym.cluster import RayRunner

    if mode == "allocation":
        policy = "certainty-equivalence"
    else:
        policy = "default"
    options = {"num_cpus": 0.25}
    workers = dict.fromkeys(SLEEPS, options)
    with RayRunner(
        make_caller(),
        workers,
        budget,
        policy,
        mode=mode,
        deadline=DEADLINE,
        seed=3,
    ) as runner:
        yield Watched(runner, budget)


# Ray sends functions by value that are made within others: its workers cannot import this file.


def make_caller() -> Callable[[Any], Any]:
    """A ``make_task`` whose tasks call the function in the payload and say what they are."""

    def make_task(worker: Any) -> Any:
        import os

        def task(payload: Any, sample: int) -> Any:
            function, argument = payload
            return function(worker, argument, sample), argument, sample, worker, os.getpid()

        return task

    return make_task


def make_sleep(sleeps: Mapping[Any, float] = SLEEPS) -> Callable[..., None]:
    def sleep(worker: Any, *_: Any) -> None:
        import time

        from ata_gym.cluster import cancelled

        end = time.perf_counter() + sleeps[worker]
        while time.perf_counter() < end and not cancelled():
            time.sleep(0.001)

    return sleep


class Watched:
    def __init__(self, runner: Any, budget: int) -> None:
        self.runner = runner
        self.budget = budget
        self.used: list[int] = []
        self.times: dict[Any, list[float]] = defaultdict(list)
        self.processes: dict[Any, int] = {}

    def round(self, argument: Any, function: Callable[..., Any] | None = None) -> Any:
        """Exactly B results of this argument, each of a sample of its own, with times that the
        tasks had.
        """
        number = self.runner.rounds
        sleeps = function is None
        done = self.runner.round((function or make_sleep(), argument))
        record = done.record
        assert self.runner.rounds == record.round == number + 1
        assert len(done.values) == len(done.indices) == self.budget
        told = [value[1:4] for value in done.values]
        assert told == [(argument, *own) for own in zip(done.indices, done.workers, strict=True)]
        assert list(done.indices) == sorted(set(done.indices) - set(self.used)), (
            "a sample was used twice"
        )
        if self.runner.mode == "allocation":
            assert done.indices == tuple(range(number * self.budget, (number + 1) * self.budget))
        counts = {worker: len(times) for worker, times in record.seconds.items()}
        assert counts == {worker: done.workers.count(worker) for worker in set(done.workers)}
        for worker, times in record.seconds.items():
            assert sum(times) <= record.round_time
            assert not sleeps or min(times) >= SLEEPS[worker]
            self.times[worker] += times
        for worker, expected in record.estimates.items():
            assert np.isfinite(expected), worker
        self.used += done.indices
        self.processes |= {
            worker: value[-1] for worker, value in zip(done.workers, done.values, strict=True)
        }
        return done

    def check_samples(self) -> None:
        """No sample was left out: what was not used is free."""
        state = self.runner.state_dict()
        assert sorted([*self.used, *state["returned_samples"]]) == list(range(state["next_sample"]))

    def until(
        self,
        happens: Callable[[Any], Any],
        function: Callable[..., Any] | None = None,
    ) -> Any:
        numbers = itertools.count()
        return until(lambda: done if happens(done := self.round(next(numbers), function)) else None)

    def play_with_kills(
        self,
        rng: np.random.Generator,
        rounds: int,
        kills: int,
        pause: float = 0.3,
    ) -> None:
        """Play while processes of actors are killed at random moments; what is believed is what was
        seen.

        After each kill at most so many seconds pass before the next round.
        """
        when = set(rng.choice(np.arange(1, rounds), kills, replace=False).tolist())
        for k in range(rounds):
            killer = None
            if k in when and self.processes:
                pid = self.processes.pop(str(rng.choice(list(self.processes))))
                killer = threading.Timer(rng.uniform(0, 0.03), kill, (pid,))
                killer.start()
            before = {worker: np.mean(times) for worker, times in self.times.items()}
            done = self.round(k)
            if killer is not None:
                killer.join()
                time.sleep(rng.uniform(0, pause))
            if type(self.runner._decider.policy).__name__ == "CertaintyEquivalence":
                for worker, expected in done.record.estimates.items():
                    np.testing.assert_allclose(expected, before[worker], err_msg=worker)
        self.check_samples()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
