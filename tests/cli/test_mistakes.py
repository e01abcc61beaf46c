import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from ata_gym.bench.runner import progress
from ata_gym.bench.store.folder import Folder
from tests.waiting import PATIENCE, without_progress

MODULES = {
    "syntax_error": "def f(:\n",
    "lacks_a_name": "import numpy as np\nzeros = np.zeros_\n",
    "exits_on_import": "import sys\nsys.exit(3)\n",
    "my_policies": (
        """
import os, signal, sys
import numpy as np
from ata_policies import AllocationPolicy

class Odd(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} {other}")

class Unmade(AllocationPolicy):
    def __init__(self, setting, *, seed=0):
        super().__init__(setting, seed=seed)
        self.share = self.setting.budget // len(str())

    def allocate(self, state):
        raise AssertionError

class Bad(AllocationPolicy):
    def allocate(self, state):
        return np.zeros((len(state.round), self.setting.n), np.int64)

class Fails(AllocationPolicy):
    def __init__(self, setting, *, how="raise", at=5, worker=0, seed=0):
        super().__init__(setting, seed=seed)
        self.how, self.at, self.worker = how, at, worker

    def allocate(self, state):
        if state.round[0] >= self.at:
            if self.how == "exit":
                sys.exit(7)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "odd":
                raise Odd("lost", "its way")
            if self.how == "peek":
                return self.setting.pool.mean()
            if self.how == "shape":
                np.ones(2) + np.ones(3)
            raise RuntimeError("lost its way")
        everything = np.eye(1, self.setting.n, self.worker, dtype=np.int64) * self.setting.budget
        return np.tile(everything, (len(state.round), 1))
"""
    ),
    "my_problems": (
        """
import torch

def mismatched():
    return torch.nn.Linear(3, 2), (torch.zeros(20, 4), torch.zeros(20, dtype=torch.long))
"""
    ),
}
BENCH = "bench --scenario icml2025-regret --rounds 9 --seeds 1 --jobs 1 --out out --policies"
TRAIN = "train --scenario icml2025-regret --rounds 3 --out out --problem"
BOARD = "leaderboard --quick --scenarios regret --seeds 1 --prices 0 --jobs 1 --out out --policies"
FAILS = "my_policies:Fails:at=1"


def place_of_line(source: str) -> str:
    """The place of the first such line of ``my_policies``, as a sentence gives it."""
    lines = MODULES["my_policies"].splitlines()
    found = next(place for place, line in enumerate(lines) if source in line)
    return f"(my_policies.py, line {found + 1}: {lines[found].strip()})"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{BENCH} my_policies:Yours", "there is no policy 'my_policies:Yours': "),
        (
            f"{BENCH} syntax_error:X",
            "no policy 'syntax_error:X': importing syntax_error failed with SyntaxError",
        ),
        (
            f"{BENCH} exits_on_import:X",
            "failed with SystemExit: 3 (exits_on_import.py, line 2: sys.exit(3))",
        ),
        (f"{BENCH} lacks_a_name:X", "(lacks_a_name.py, line 2: zeros = np.zeros_)"),
        (
            f"{BENCH} uta,my_policies:Fails:at=1",
            "my_policies:Fails:at=1 fails in the first round: RuntimeError: lost",
        ),
        (
            f"{BENCH} uta,my_policies:Bad",
            "my_policies:Bad fails in the first round: the tasks of row 0 must sum to",
        ),
        (
            f"{BENCH} ata:alpha=nan",
            "give alpha=..., a positive bound on every worker's psi1 norm of X: here it is nan",
        ),
        (
            f"{TRAIN} torch:my_problems:mismatched",
            "model of mismatched does not take its data: mat1 and mat2",
        ),
        (
            f"{BENCH} uta --budget 1000000000000",
            "1000000000000 results each needs about 64,000 GB of memory",
        ),
        (f"{BENCH} uta --out ''", "--out must name a folder, not ''"),
        (
            f"{BENCH} uta,{FAILS}:how=shape",
            place_of_line("np.ones(2)"),
        ),  # a ValueError, as our errors are
        (f"{BENCH} uta,{FAILS}:how=exit", place_of_line("sys.exit(7)")),
        (f"{BENCH} uta,my_policies:Unmade", place_of_line("self.share =")),
        (f"{BOARD} my_policies:Unmade", place_of_line("self.share =")),
        (
            f"track --scenario changing-walk --change 4 --rounds 9 --out out --policies {FAILS}",
            place_of_line("raise R"),
        ),
        (
            f"watch icml2025-regret --rounds 9 --policies {FAILS}:how=shape",
            place_of_line("np.ones(2)"),
        ),
        (f"{TRAIN} quadratic --policies {FAILS}", place_of_line("raise RuntimeError")),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(refused, tmp_path, line, sentence):
    before = {*tmp_path.rglob("*")}
    assert sentence in refused(line)
    left = {*tmp_path.rglob("*")} - before
    assert not [path for path in left if path.is_file() and path.suffix not in {".json", ".pyc"}]


def test_a_fault_found_by_check_or_in_mid_run_has_a_place_and_leaves_the_others_their_results(
    run,
    tmp_path,
):
    assert place_of_line("raise RuntimeError") in run(f"check {FAILS}", code=1).stdout
    assert place_of_line("self.share =") in run("check my_policies:Unmade", code=1).stdout
    assert place_of_line("sys.exit(7)") in run("check my_policies:Fails:how=exit", code=1).stdout
    run(f"{BENCH} my_policies:Fails --rounds 8", code=1)  # a corrected command may follow
    names = [f"my_policies:Fails:how={how}" for how in ("exit", "shape", "peek")]
    later = run(f"{BENCH} uta,{','.join(names)}", code=1).stderr
    assert Folder(tmp_path / "out").finished("uta")
    first, second, third = sorted(
        without_progress(later).splitlines(),
        key=lambda line: "peek" in line,
    )
    assert "UndeclaredError: Fails says knows = " in third
    assert re.match(
        r"ata-gym: my_policies:Fails:how=exit failed: in round \d+, row 0 \(seed"
        r" 0\).*sys.exit\(7\) \(",
        first,
    )
    assert re.match(
        r"ata-gym: my_policies:Fails:how=shape failed: in round \d+, row 0 \(seed 0\)",
        second,
    )
    for line, source in (
        (first, "sys.exit(7)"),
        (second, "np.ones(2)"),
        (third, "self.setting.pool"),
    ):
        assert f"{place_of_line(source)} (see " in line
    told = run(f"{BOARD.replace(' out ', ' board ')} my_policies:Fails", code=1).stderr
    assert f"RuntimeError: lost its way {place_of_line('raise RuntimeError')} (see " in told


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_modules_of_the_current_folder_play_in_worker_processes_and_one_that_is_killed_is_told(
    tmp_path,
):
    for package in ("scipy", "polars", "llvmlite"):
        (tmp_path / f"{package}.py").write_text("raise SystemExit('imported')\n")
    fast, slow = (f"my_policies:Fails:at=1000:worker={worker}" for worker in (0, 3))
    policies = f"my_policies:Fails:how=kill,my_policies:Fails:how=odd,{fast},{slow}"
    line = (
        "bench --scenario icml2025-regret --rounds 60 --seeds 1 --jobs 2 --out out --policies"
        f" {policies}"
    )
    command = [Path(sys.executable).with_name("ata-gym"), *line.split()]
    played = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert played.returncode == 1
    killed, odd = sorted(without_progress(played.stderr).splitlines())
    assert (
        "how=kill failed: its worker process was killed by the system, often for lack of " in killed
    )
    # cannot be made again from its message
    assert f"Odd: lost its way {place_of_line('raise Odd')} (see " in odd
    assert all(f" {name} " in played.stdout for name in (fast, slow))
    runtimes = [
        pl.read_parquet(Folder(tmp_path / "out").result(name))["runtime"][-1]
        for name in (fast, slow)
    ]
    assert runtimes[1] > 2 * runtimes[0]  # worker 3 is four times as slow as worker 0


def test_memory_that_is_not_there_is_one_sentence(refused, monkeypatch):
    from ata_gym.bench.experiment import Experiment

    def need(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(Experiment, "make_envs", need)
    assert (
        refused(f"{BENCH} uta") == "ata-gym: there is not enough memory: Unable to allocate 7 TiB\n"
    )


def test_progress_is_a_line_now_and_then_where_stderr_is_no_terminal(run, monkeypatch):
    # as it is, short commands have nothing to tell
    monkeypatch.setattr(
        progress,
        "LINE_EVERY",
        0.0,
    )
    lines = run(
        "bench --scenario icml2025-regret --rounds 300 --seeds 1 --jobs 1 --out out --policies uta",
    ).stderr
    assert lines.splitlines()[0] == "ata-gym: 0% done after 0.0 minutes (uta 1 of 300)"
    assert lines.count("\n") > 25
