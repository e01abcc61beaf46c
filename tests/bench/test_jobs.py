import os
import signal
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner import jobs
from ata_gym.bench.runner.cost_regret import CostRun
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.store.folder import open_folder
from tests.bench.by_hand import play_all
from tests.fuzz.kills import wait_for_group
from tests.waiting import PATIENCE, until, without_progress

POLICIES = ["ata", "gta", "uta"]
ROUNDS = 4_000  # more than are played between the first checkpoint and the kill


def experiment(rounds: int) -> Experiment:
    return Experiment.on_scenario("icml2025-regret", rounds=rounds, seeds=2)


def result_bytes(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "results").iterdir())}


def broken_after(begin: bool) -> Any:
    """Processes that end, after their jobs have begun or before."""

    def executor(_workers: int, _context: Any, _begin: Any, initargs: tuple[Any]) -> Any:

        def submit(_work: Any, place: int, *_: Any) -> Future[None]:
            if begin:
                initargs[0][place] = 0
            answer: Future[None] = Future()
            answer.set_exception(BrokenProcessPool())
            return answer

        return SimpleNamespace(submit=submit, shutdown=lambda **_: None)

    return executor


def test_processes_that_end_before_they_begin_are_told_from_those_that_are_killed(
    tmp_path,
    monkeypatch,
):
    """The first belong to a script that does not guard what it runs, which each process imports."""
    played = experiment(5)
    play = partial(
        play_all,
        played,
        POLICIES,
        open_folder(tmp_path, played.config()),
        effort=Effort(jobs=2),
    )
    monkeypatch.setattr(jobs, "ProcessPoolExecutor", broken_after(begin=False))
    with pytest.raises(
        jobs.NotStartedError,
        match=r'^put what the script runs under if __name__ == "__main__": or give',
    ):
        play()
    monkeypatch.setattr(jobs, "ProcessPoolExecutor", broken_after(begin=True))
    said = play()
    assert said.keys() == {*POLICIES}
    assert all("lack of memory" in str(error) for error in said.values())


def test_side_by_side_the_longest_jobs_begin_first(tmp_path, monkeypatch):
    begun = []

    def executor(*_: Any) -> Any:

        def submit(_work: Any, _place: int, job: Any, *_: Any) -> Future[float]:
            begun.append((job.policy, job.experiment.rounds))
            answer: Future[float] = Future()
            answer.set_result(1.0)
            return answer

        return SimpleNamespace(submit=submit, shutdown=lambda **_: None)

    monkeypatch.setattr(jobs, "ProcessPoolExecutor", executor)
    store = open_folder(tmp_path, experiment(10).config())
    names = ["uta", "distribution-learner", "ofta"]
    todo = [
        Job(experiment(rounds), name, store, CostRun) for rounds in (10, 1000) for name in names
    ]
    assert len(list(jobs.on_this_machine(todo, 2, 10.0, lambda *_: None))) == len(todo)
    assert begun == [
        ("distribution-learner", 1000),
        ("distribution-learner", 10),
        ("uta", 1000),
        ("ofta", 1000),
        ("uta", 10),
        ("ofta", 10),
    ]


def test_jobs_in_this_process_go_on_after_ctrl_c_and_end_with_the_same_bytes(tmp_path):
    played = experiment(400)
    whole, stopped = (
        open_folder(tmp_path / name, played.config()) for name in ("whole", "stopped")
    )

    def interrupt(policy: str, rounds: int) -> None:
        if policy == POLICIES[1] and 0 < rounds < 300:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play_all(played, POLICIES, stopped, effort=Effort(jobs=1), progress=interrupt)
    assert [stopped.finished(policy) for policy in POLICIES] == [True, False, False]
    assert stopped.checkpoint(POLICIES[1]).exists()
    for folder in (whole, stopped):
        assert play_all(played, POLICIES, folder, effort=Effort(jobs=1)) == {}
    assert result_bytes(whole.path) == result_bytes(stopped.path)


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(tmp_path):
    """After a first checkpoint, and after a first result; SIGTERM comes in the background of a
    script.
    """
    played = experiment(ROUNDS)
    out = tmp_path / "out"
    line = (
        f"bench --scenario icml2025-regret --rounds {ROUNDS} --seeds 2 --policies"
        f" {','.join(POLICIES)} --jobs 2"
    )
    command = [sys.executable, "-m", "ata_gym", *line.split(), "--save-every", "0.05", "--out", out]
    in_background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    said = "ata-gym: stopped by SIGTERM; the same command goes on from here\n"
    for before, when in ((in_background, "*.npz"), ([], "*.parquet")):
        with Popen(
            [*before, *command],
            start_new_session=True,
            stdout=DEVNULL,
            stderr=PIPE,
            text=True,
        ) as process:
            try:
                until(lambda when=when: list(out.rglob(when)), process)
                if before:
                    os.killpg(process.pid, signal.SIGTERM)  # as schedulers do
                    assert without_progress(process.communicate(timeout=PATIENCE)[1]) == said
                    assert process.returncode == 143
            finally:
                process.kill()
        wait_for_group(process.pid)
        assert len(result_bytes(out)) < 2 * len(POLICIES)
    for where in (out, tmp_path / "whole"):
        play_all(played, POLICIES, open_folder(where, played.config()), CostRun, Effort(jobs=1))
    assert result_bytes(out) == result_bytes(tmp_path / "whole")
    assert not list(out.glob("checkpoints/*"))
