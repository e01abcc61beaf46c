"""Actors that are killed and stopped in the midst of rounds: every round gives exactly B results of
its own, the weights are the same as in one process, and no time lies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.cluster.disturbances import Kind, disturb, drawn_kinds, in_thread
from tests.waiting import until

SLEEPS = {"a": 0.002, "b": 0.008}
"""How long the tasks of the workers take at least."""
FREQUENCIES = (1.0, 2.0, 3.0, 5.0)
"""Of the waves that samples are made of."""
STEP = 0.02
LONGEST = "longest round, in s"
FARTHEST = "greatest difference of a weight"
MODES = ("allocation", "race", "dispatch")
DEADLINE = 5.0
"""Seconds without an answer after which a worker counts as lost: more than one that is well needs
on a busy machine.
"""


def attempt(
    rng: np.random.Generator,
    folder: Path,
    kinds: Sequence[Kind] = (),
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train in each mode while actors are disturbed, by default once in each."""
    kinds = kinds or drawn_kinds(rng, len(MODES))
    of_modes = []
    with local_cluster():
        for place, mode in enumerate(MODES):
            say(mode)
            of_mode = folder / mode
            of_mode.mkdir()
            with watched_runner(mode, budget=int(rng.integers(4, 9)), folder=of_mode) as watched:
                told = watched.train_while_disturbed(rng, kinds[place :: len(MODES)], say)
                of_modes.append(told)
    return {
        "rounds": sum(told["rounds"] for told in of_modes),
        **{name: max(told[name] for told in of_modes) for name in (LONGEST, FARTHEST)},
    }


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
def watched_runner(mode: str, budget: int = 6, folder: Path | None = None) -> Iterator[Watched]:
    """A runner whose actors write their processes into the folder while they start."""
    from ata_gym.cluster import RayRunner

    if mode == "allocation":
        policy = "certainty-equivalence"
    else:
        policy = "default"
    options = {"num_cpus": 0.25}
    workers = dict.fromkeys(SLEEPS, options)
    with RayRunner(
        make_caller(folder),
        workers,
        budget,
        policy,
        mode=mode,
        deadline=DEADLINE,
        seed=3,
    ) as runner:
        yield Watched(runner, budget, folder)


# Ray sends functions by value that are made within others: its workers cannot import this file.


def make_caller(folder: Path | None = None) -> Callable[[Any], Any]:
    """A ``make_task`` whose tasks call the function in the payload and say what they are."""

    def make_task(worker: Any) -> Any:
        import os
        import time

        if folder is not None:
            (folder / f"{worker}-{os.getpid()}").touch()
            # Such as loading data.
            time.sleep(0.3)

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


def make_gradient() -> Callable[..., Any]:
    """The gradient of a sample, of a linear model in double precision."""
    sleep = make_sleep()
    frequencies = FREQUENCIES

    def gradient(worker: Any, weights: Any, sample: int) -> Any:
        import numpy as np

        sleep(worker)
        x = np.sin(sample * np.array(frequencies))
        return 2.0 * (np.dot(weights, x) - x.sum()) * x

    return gradient


def mean_gradient(weights: np.ndarray, samples: Sequence[int]) -> np.ndarray:
    """The mean gradient of samples, as one process computes it."""
    x = np.sin(np.outer(samples, FREQUENCIES))
    return 2.0 * x.T @ (x @ weights - x.sum(1)) / len(samples)


class Watched:
    def __init__(self, runner: Any, budget: int, folder: Path | None = None) -> None:
        self.runner = runner
        self.budget = budget
        self.folder = folder
        self.last: Any = None
        self.processes: dict[Any, int] = {}
        self.used: list[int] = []
        self.times: dict[Any, list[float]] = defaultdict(list)

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
        self.last = done
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

    def train_while_disturbed(
        self,
        rng: np.random.Generator,
        kinds: Sequence[Kind],
        say: Callable[[str], None] = lambda _: None,
        rounds: int = 10,
    ) -> dict[str, Any]:
        """Train while actors are disturbed at random moments, and so many rounds more.

        What is believed is what was seen.

        Returns:
            What happened, in numbers.
        """
        started = self.runner.rounds
        weights = np.zeros(len(FREQUENCIES))
        weights_alone = weights.copy()
        farthest = 0.0
        longest = 0.0
        last = None
        gradient_of = make_gradient()
        with in_thread(lambda: disturb(rng, _Actors(self), kinds, say)) as ended:
            while last is None or self.runner.rounds < last:
                if last is None and ended():
                    last = self.runner.rounds + rounds
                before = {worker: np.mean(times) for worker, times in self.times.items()}
                done = self.round(tuple(weights.tolist()), gradient_of)
                for worker, times in done.record.seconds.items():
                    assert min(times) >= SLEEPS[worker]
                longest = max(longest, done.record.round_time)
                weights -= STEP * np.mean([value[0] for value in done.values], axis=0)
                weights_alone -= STEP * mean_gradient(weights_alone, done.indices)
                apart = np.abs(weights - weights_alone).max()
                farthest = max(farthest, float(apart))
                assert apart <= 1e-12, f"round {done.record.round}: weights are {apart} apart"
                if type(self.runner._decider.policy).__name__ == "CertaintyEquivalence":
                    for worker, expected in done.record.estimates.items():
                        if worker in before:
                            np.testing.assert_allclose(expected, before[worker], err_msg=worker)
        self.check_samples()
        return {
            "rounds": self.runner.rounds - started,
            LONGEST: round(longest, 1),
            FARTHEST: farthest,
        }


class _Actors:
    """The actors of a runner that plays rounds in another thread."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._folder = watched.folder

    @property
    def names(self) -> tuple[str, ...]:
        """The workers that have tasks: the loss of another one is noticed when it gets some."""
        return tuple(self._watched.last.workers)

    def wait_for_all(self) -> None:
        first = self._watched.runner.rounds

        def all_take_part() -> bool:
            last = self._watched.last
            # The round that is open now may have tasks of an actor that is gone.
            return last is not None and last.record.round > first + 1 and not last.record.away

        until(all_take_part, about="all actors take part")

    def _pids(self, name: str) -> list[int]:
        """The processes that a worker has had, the last one at the end."""
        paths = sorted(self._folder.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime_ns)
        return [int(path.name.partition("-")[2]) for path in paths]

    def pid(self, name: str) -> int:
        return self._pids(name)[-1]

    def replaced(self, name: str) -> int:
        number = len(self._pids(name))
        until(lambda: len(self._pids(name)) > number, about=f"a successor of {name}")
        return self.pid(name)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
