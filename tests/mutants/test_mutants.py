"""Mutants are drawn where a test can see them, and each is tried on the tests that run its line."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="the extra dev")

from coverage import CoverageData

from tests.mutants.places import Place, all_places, sample
from tests.mutants.recording import COVERAGE, DURATIONS, Recording

SOURCE = '''"""A file."""

LIMIT = 3


def chosen(x: int | None, most: float = 2.0) -> int | str:
    """At most ``most``."""
    if x is not None and x < most:
        return x + LIMIT
    return -1
'''


@pytest.fixture
def checkout(tmp_path):
    files = {
        "pools/pool": SOURCE,
        "envs/env": "from ata_gym.pools.pool import chosen\n",
        "__init__": "",
    }
    for name, source in files.items():
        path = tmp_path / f"ata_gym/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


def test_mutants_are_valid_change_one_line_that_can_be_seen_and_are_drawn_by_a_seed(checkout):
    mutants = [mutant for together in all_places(checkout) for mutant in together]
    assert {one.line for one in mutants} == {3, 6, 8, 9, 10}
    for one in mutants:
        changed = one.mutated(SOURCE)
        compile(changed, one.file, "exec")
        differ = [
            k
            for k, (a, b) in enumerate(zip(SOURCE.split("\n"), changed.split("\n"), strict=True), 1)
            if a != b
        ]
        assert differ == [one.line]
        assert "int | None" in changed
        assert "-> int | str" in changed
    drawn = sample(checkout, 4, seed=1)
    assert (drawn, len({one.line for one in drawn})) == (sample(checkout, 4, seed=1), 4)
    assert {tuple(sample(checkout, 4, seed=seed)) for seed in range(5)} != {tuple(drawn)}
    assert {one.room for one in sample(checkout, 99, seed=0)} == {"pools"}
    assert sample(checkout, 9, seed=0, room="envs") == []
    other = Place("policies/ata_policies/race/late.py", 1, "", 0)
    assert (other.room, other.tests) == ("policies/race", "tests/policies/race")


def test_the_tests_that_run_a_line_come_by_nearness_and_time(checkout):
    near = "tests/pools/test_pool.py::near"
    quick = "tests/envs/test_a.py::quick"
    slow = "tests/cli/test_b.py::slow"
    other = "tests/envs/test_a.py::of_the_other"
    (checkout / DURATIONS).write_text(json.dumps({near: 3.0, quick: 1.0, slow: 5.0, other: 1.0}))
    data = CoverageData(str(checkout / COVERAGE))
    for test, file, lines in (
        (quick, "pools/pool", [8, 9]),
        (slow, "pools/pool", [8]),
        (other, "envs/env", [1]),
    ):
        data.set_context(f"{test}|run")
        data.add_lines({str(checkout / f"ata_gym/{file}.py"): lines})
    data.write()
    recording = Recording(checkout, checkout)

    def tests(line, seconds=99.0, file="ata_gym/pools/pool.py"):
        return recording.tests_of(Place(file, line, "", 0), seconds)

    assert (tests(8), tests(8, seconds=5.0)) == ([near, quick, slow], [near, quick])
    assert tests(9) == [near, quick]
    # run when the file is imported: any test of its functions can see it
    assert tests(3) == [
        near,
        quick,
        slow,
    ]
    assert tests(1, file="ata_gym/envs/env.py") == [other]


def test_a_run_finds_what_a_test_holds_shows_what_lives_and_goes_on(checkout):
    """In a real repository: the test below holds the sum and the bound, and not the value above the
    bound.
    """
    test = checkout / "tests" / "pools" / "test_pool.py"
    test.parent.mkdir(parents=True)
    test.write_text(
        "from ata_gym.pools.pool import chosen\n\n\n"
        "def test_chosen():\n    assert chosen(1) == 4\n    assert chosen(2) != 9\n",
    )
    shutil.copytree(
        Path(__file__).parent,
        checkout / "tests" / "mutants",
        ignore=shutil.ignore_patterns("test_*"),
    )
    (checkout / ".gitignore").write_text("build/\n__pycache__/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
    seed = next(
        seed for seed in count() if {one.line for one in sample(checkout, 2, seed)} == {9, 10}
    )
    command = [
        sys.executable,
        "-m",
        "tests.mutants",
        "--jobs",
        "1",
        "--places",
        "2",
        "--seed",
        str(seed),
    ]
    alone = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")
    }
    first, again = (
        subprocess.run(command, cwd=checkout, env=alone, capture_output=True, check=True, text=True)
        for _ in range(2)
    )
    assert "Running all tests once" in first.stderr
    assert "Running all tests once" not in again.stderr
    assert first.stdout.endswith(again.stdout[-200:])
    assert re.search(r"pools\s+│ 2 \s+│ 1", first.stdout), first.stdout
    assert "ata_gym/pools/pool.py:10" in first.stdout
    assert (checkout / "ata_gym/pools/pool.py").read_text() == SOURCE
