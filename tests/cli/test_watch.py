"""``ata-gym watch``, as a user gives it: in a terminal, into a pipe and into files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from PIL import Image

WATCH = [sys.executable, "-m", "ata_gym", "watch", "five-workers"]


def test_into_a_pipe_goes_the_last_round_of_each_policy_and_the_totals():
    command = [*WATCH, "--rounds", "6", "--policies", "uta,gta,default,race,dispatch"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "five-workers: 5 workers, 8 results in a round"
    for policy in ("uta", "gta", "default", "race", "dispatch"):
        at = lines.index(policy)
        assert lines[at + 1].startswith("Round 6: ")
        assert "8 results were in" in lines[at + 1]
        (total,) = (line.split() for line in lines if line.startswith(f"{policy} "))
        assert len(total) == 6
        assert (float(total[3]) > 0) == (policy in {"gta", "race", "dispatch"})
    assert max(map(len, lines)) <= 80
    assert "averages of rounds 4 to 6" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("size", [("180", "50"), ("80", "24")])
def test_a_terminal_shows_the_rounds_pass_by(size):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": size[0], "LINES": size[1]}
    command = [*WATCH, "--rounds", "5", "--speed", "50", "--policies", "uta,gta"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # its end of the terminal is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait() == 0
    text = seen.decode()
    for k in range(1, 6):
        assert text.count(f"Round {k}: ") == (4 if k == 5 else 2)  # the last is left as it is, in full
    assert all(line in text for line in ("five-workers: 5 workers", "estimate      mean", "█ done"))
    assert "averages of rounds 3 to 5" in text


def test_pictures_go_into_a_folder(run, tmp_path):
    result = run("watch --rounds 5 --policies gta,ata,default --budget 6 --out new/pictures")
    for name in ("who-waits.{png,svg}", "learning.gif"):
        assert f"new/pictures/{name}" in result.stdout
    assert "Round" not in result.stdout
    with Image.open(tmp_path / "new/pictures/learning.gif") as animation:
        assert animation.n_frames == 5
    assert (tmp_path / "new/pictures/who-waits.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("nowhere", "there is no scenario 'nowhere'"),
        ("--policies ,", "name at least one policy"),
        ("--policies utaa", "there is no policy 'utaa'"),
        ("--rounds 0", "rounds must be a whole number"),
        ("--speed 0", "speed must be a finite number above 0"),
        ("--seed -1", "seed must be a whole number"),
    ],
)
def test_a_mistake_gets_one_sentence(refused, options, says):
    assert says in refused(f"watch {options}")
