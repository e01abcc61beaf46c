"""What is said where a Ray cannot be started or joined, and who starts one."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

ray = pytest.importorskip("ray", reason="the extra cluster")

from ray._private import ray_constants  # noqa: E402

from ata_gym.cluster import RayRunner, connect_ray  # noqa: E402
from tests.waiting import PATIENCE  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(
        ray,
        "init",
        Mock(side_effect=Exception("\nThe node timed out.\nIts log ends here")),
    )
    monkeypatch.setattr(ray, "is_initialized", lambda: False)


@pytest.mark.parametrize("start", [connect_ray, lambda: RayRunner(lambda _: None, 2, 3, "uta")])
def test_a_ray_that_does_not_start_is_one_sentence(start):
    before = ray_constants.ENABLE_RAY_CLUSTER
    with pytest.raises(
        ValueError,
        match=r"^Ray cannot be started on this machine: The node timed out\. \(its log fi",
    ):
        start()
    assert before is ray_constants.ENABLE_RAY_CLUSTER


@pytest.mark.parametrize("address", ["here", "10.0.0.1:99999", "10.0.0.1:0", "ray://10.0.0.1:1"])
def test_an_address_that_cannot_be_is_refused(monkeypatch, address):
    with pytest.raises(ValueError, match=r"^address must be auto, or host:port .* not "):
        connect_ray(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ValueError, match="RAY_ADDRESS must be auto, or host:port"):
        connect_ray()


def test_a_ray_is_started_in_one_place_which_binds_it_to_loopback():
    files = [
        *ROOT.glob("ata_gym/**/*.py"),
        *ROOT.glob("notebooks/**/*.py"),
        *ROOT.glob("notebooks/**/*.ipynb"),
    ]
    starting = [file.name for file in files if "ray.init(" in file.read_text(encoding="utf-8")]
    assert starting == ["connection.py"]


TERMINATED = """
import os, signal, sys, time
from unittest.mock import patch
import ray
from ata_gym.cluster import connect_ray
start = ray.init

def init(*arguments, **options):
    start(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)  # Ray has asked for handlers of its own now
    time.sleep(4)  # its core would abort the process after three seconds

def handle(*_):
    assert ray.is_initialized()
    ray.shutdown()
    sys.exit(143)

signal.signal(signal.SIGTERM, handle)
with patch("ray.init", init):
    connect_ray(num_cpus=1, object_store_memory=80_000_000)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_sigterm_while_ray_starts_does_not_abort_the_process():
    quiet = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    quiet.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINATED],
        env=quiet,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 143, errors
