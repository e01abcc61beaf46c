import os
import shlex
import subprocess
import sys
from contextlib import suppress
from io import StringIO

import pytest
from rich.console import Console

from ata_gym.bench.report import style
from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
from ata_gym.cli.watch import _screen
from ata_gym.scenarios import scenario
from tests.bench.sketches import DRAW


def test_where_stdout_is_no_terminal_it_gets_the_last_round_of_each_policy_and_the_totals(run):
    line = "watch five-workers --rounds 6 --policies uta,gta,default,race,dispatch"
    done = run(line)
    assert done.stdout == run(line).stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "five-workers: 5 workers, 8 results in a round"
    for policy in ("uta", "gta", "distribution-learner", "race", "dispatch"):
        at = lines.index(policy)
        assert lines[at + 1].startswith("Round 6: ")
        assert "8 results were in" in lines[at + 1]
        (total,) = (line.split() for line in lines if line.startswith(f"{policy} "))
        assert len(total) == 6
        assert (float(total[3]) > 0) == (policy in {"gta", "race", "dispatch"})
    assert max(map(len, lines)) <= 80
    assert "averages of rounds 4 to 6" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_shows_the_rounds_pass_by():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "180", "LINES": "50"}
    command = [
        sys.executable,
        *shlex.split("-m ata_gym watch five-workers --rounds 5 --speed 50 --policies uta,gta"),
    ]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # at last its end of the terminal is closed
        while part := os.read(ours, 1 << 16):
            seen += part
    os.close(ours)
    assert process.wait() == 0
    text = seen.decode()
    for k in range(1, 6):
        # the last is left as it is, in full
        assert text.count(f"Round {k}: ") == (4 if k == 5 else 2)
    assert all(line in text for line in ("five-workers: 5 workers", "estimate      mean", "█ done"))
    assert "averages of rounds 3 to 5" in text


@pytest.mark.parametrize(("width", "height", "widest"), [(180, 50, 162), (80, 24, 80)])
def test_rounds_stand_beside_each_other_where_there_is_room(width, height, widest):
    policies = [WatchedPolicy(name, scenario("five-workers"), 3) for name in ("uta", "gta")]
    rounds = [policy.play_round() for policy in policies]
    console = Console(width=width, height=height, file=StringIO())
    console.print(_screen(policies, rounds, "five workers", console.size))
    lines = console.file.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= widest
    assert len(lines) <= height
    assert any(line.split() == ["uta", "gta"] for line in lines) == (width > 160)
    assert sum(line.count("Round 1: ") for line in lines) == 2


def test_pictures_go_into_a_folder(run, tmp_path, monkeypatch):
    monkeypatch.setattr(style, "save", DRAW)
    result = run("watch --rounds 5 --policies gta,ata,default --budget 6 --out new/pictures")
    assert "new/pictures/who-waits.{png,svg}" in result.stdout
    assert "Round" not in result.stdout
    assert (tmp_path / "new/pictures/who-waits.svg").read_text().startswith("<?xml")
