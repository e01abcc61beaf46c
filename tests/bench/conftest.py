"""Policies played into folders of their own, whole, stopped or killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import chain, repeat
from pathlib import Path

import pytest

from ata_gym.bench.cost_regret import CostRun
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, play_all
from ata_gym.bench.experiment.run import Job, PolicyRun, play_to_end
from ata_gym.bench.experiment.store import Folder, open_folder
from tests.waiting import until


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., Folder]:
    """Play policies to the end; the folder with their results."""

    def play(experiment: Experiment, *policies: str, name: str = "out", run_of: type[PolicyRun] = PolicyRun) -> Folder:
        folder = open_folder(tmp_path / name, experiment.config())
        assert play_all(experiment, policies, folder, run_of, effort=Effort(jobs=1)) == {}
        return folder

    return play


@pytest.fixture
def check_stops(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Play a policy once as a whole, and once stopped after so many looks, again and again: the same bytes.

    No round is played twice.
    """

    @cache
    def played_at_once(experiment: Experiment, policy: str, run_of: type[PolicyRun]) -> Folder:
        whole = open_folder(tmp_path_factory.mktemp("whole"), experiment.config())
        play_to_end(Job(experiment, policy, whole, run_of))
        return whole

    def check(experiment: Experiment, policy: str, looks: Iterable[int], run_of: type[PolicyRun] = CostRun) -> None:
        whole = played_at_once(experiment, policy, run_of)
        parts = open_folder(tmp_path_factory.mktemp("parts"), experiment.config())
        told: list[int] = []
        for most in looks:
            looked = partial(next, chain(repeat(False, most - 1), repeat(True)))
            seconds = play_to_end(
                Job(experiment, policy, parts, run_of), stop=looked, progress=told.append, save_every=0.0
            )
            assert (seconds is None) == parts.checkpoint(policy).exists() != parts.finished(policy)
            if seconds is not None:
                break
        else:
            assert play_to_end(Job(experiment, policy, parts, run_of), progress=told.append) is not None
        assert told == sorted(set(told))
        assert told[-1] == experiment.rounds
        assert parts.result(policy).read_bytes() == whole.result(policy).read_bytes()
        tasks = [path.read_bytes() for where in (whole, parts) for path in where.path.glob("allocations/*.parquet")]
        assert len(tasks) in {0, 2}
        assert tasks[:1] == tasks[1:]
        assert not list(parts.path.rglob("*.npz"))

    return check


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in a process group of its own, and wait for its first file of a kind.

    It ignores signals of these names, as INT where a script starts a command with ``&``.
    """
    started = []

    def command(line: str, out: Path, pattern: str, ignored: str = "") -> subprocess.Popen[str]:
        without = ["sh", "-c", f'trap "" {ignored}; exec "$@"', "sh"] if ignored else []
        process = subprocess.Popen(
            [*without, sys.executable, "-m", "ata_gym", *line.split(), "--out", str(out)],
            start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        until(lambda: list(out.rglob(pattern)), process)
        return process

    yield command
    for process in started:
        if process.poll() is None:  # the test has failed
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
