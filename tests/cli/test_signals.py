import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE, until, without_progress

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")

COMMAND = ["-m", "ata_gym", "bench", "--scenario", "icml2025-regret", "--policies", "uta", "--out"]


@pytest.mark.parametrize(
    ("module", "which"),
    [("numpy", signal.SIGINT), ("ata_gym.cli", signal.SIGTERM)],
)
def test_a_signal_while_the_command_starts_leaves_no_traceback(tmp_path, module, which):
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *COMMAND, tmp_path / "out"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    imported = next(line for line in process.stderr if line.split("|")[-1].strip() == module)
    os.killpg(process.pid, which)
    rest = process.communicate(timeout=PATIENCE)[1]
    assert imported
    assert process.returncode in {-which, 128 + which}
    assert "Traceback" not in rest


def test_ctrl_c_while_kernels_are_compiled_stops_the_command_when_they_are_ready(tmp_path):
    begun = tmp_path / "tmp"
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    begun.mkdir()
    process = subprocess.Popen(
        [sys.executable, *COMMAND, tmp_path / "out"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **own},
    )
    until(lambda: list(begun.glob("ata-gym-kernel-*")), process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert without_progress(errors) == "ata-gym: stopped; the same command goes on from here\n"
    assert process.returncode == 130
    assert not list(begun.glob("ata-gym-kernel-*"))
    assert list((tmp_path / "cache").rglob("sha256sums"))
