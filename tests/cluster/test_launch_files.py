"""The files in notebooks/cluster that start jobs, as far as they can be tried without Slurm and other machines."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.waiting import PATIENCE, until

FOLDER = Path(__file__).parents[2] / "notebooks" / "cluster"
SLURM = FOLDER / "slurm.sh"
SCRIPT = SLURM.read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None or os.name != "posix", reason="needs bash")


def code_lines() -> list[str]:
    return [line for line in SCRIPT.splitlines() if not line.lstrip().startswith("#")]


def torchrun_command() -> list[str]:
    """What srun starts, with the variables still in it."""
    joined = "\n".join(code_lines()).replace("\\\n", " ")
    (line,) = (line for line in joined.splitlines() if line.startswith("srun "))
    words = shlex.split(line.removesuffix("&"))
    return words[words.index("torch.distributed.run") + 1 :]


def test_every_variable_of_the_script_is_quoted_and_set():
    assert SCRIPT.startswith("#!/usr/bin/env bash\n")
    code = "\n".join(code_lines())
    bare = re.sub(r'"[^"]*"', "", code)
    assert not re.findall(r"\$\{?\w.*", bare)
    named = set(re.findall(r"\$\{?([A-Za-z]\w*)", code))
    ours = set(re.findall(r"^\s*(?:export )?([A-Za-z]\w*)=", code, re.MULTILINE)) | {"HOME", "PATH", "PWD"}
    assert all(name in ours or name.startswith("SLURM_") for name in named), named - ours


def test_the_options_of_sbatch_fit_the_variables():
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", SCRIPT, re.MULTILINE))
    assert options["nodes"].partition("-")[0] == re.search(r"^MIN_NODES=(\d+)", SCRIPT, re.MULTILINE)[1]
    assert options["ntasks-per-node"] == "1"
    assert re.fullmatch(r"B:USR1@\d+", options["signal"])
    seconds = int(options["signal"].partition("@")[2])
    assert int(re.search(r"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=(\d+)", SCRIPT)[1]) < seconds
    assert {"requeue", "no-kill"} <= options.keys()


def test_torchrun_takes_its_options():
    run = pytest.importorskip("torch.distributed.run")
    known = {"$MIN_NODES": "2", "$SLURM_JOB_NUM_NODES": "4", "$WORKERS_PER_NODE": "2", "$MAX_RESTARTS": "20"}
    words = []
    for word in torchrun_command():
        for name, value in known.items():
            word = word.replace(name, value)  # noqa: PLW2901
        words.append(word)
    given = run.get_args_parser().parse_args(words)
    assert run.parse_min_max_nnodes(given.nnodes) == (2, 4)
    assert (given.rdzv_backend, given.max_restarts, given.nproc_per_node) == ("c10d", 20, "2")
    assert given.training_script == "$CODE/train.py"
    assert given.training_script_args == ["${TRAIN[@]}"]


TRAIN = """
import argparse, os, pathlib, signal, sys, time
parser = argparse.ArgumentParser()
for name in ("--steps", "--budget", "--policy", "--checkpoint"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
rank, place = os.environ["RANK"], pathlib.Path(given.checkpoint)
if place.exists():
    sys.exit(0)
def save(*_):
    if rank == "0":
        place.write_text("saved")
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
pathlib.Path(f"begun-{rank}").touch()
time.sleep(900)
"""

COMMANDS = {
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; echo "$$" > srun.pid; exec "$@"',
    "scancel": 'echo "scancel $*" >> said; kill -TERM "$(cat srun.pid)"',
    "scontrol": 'echo "scontrol $*" >> said; if [ "$1" = show ]; then echo localhost; echo other; fi',
}
"""Stand-ins for Slurm's commands, on one machine."""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[list[str]]:
    """The command that runs the script in a folder where Slurm's commands are the stand-ins above."""
    bin_folder = tmp_path / "venv" / "bin"
    bin_folder.mkdir(parents=True)
    python = f'exec "{sys.executable}" "$@"'  # a link would look for its packages beside itself
    for name, body in {**COMMANDS, "python": python}.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_folder / name).chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    text = SCRIPT.replace('VENV="$HOME/ata-gym"', f'VENV="{tmp_path / "venv"}"').replace("MIN_NODES=2", "MIN_NODES=1")
    (tmp_path / "slurm.sh").write_text(text)
    yield ["bash", "slurm.sh"]
    if (tmp_path / "srun.pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "srun.pid").read_text()), 0)  # torchrun has ended


def test_the_time_limit_saves_and_queues_again_and_the_next_start_ends(slurm, tmp_path):
    pytest.importorskip("torch")
    job = os.environ | {
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "1",
        "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_CPUS_PER_TASK": "2",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(slurm, cwd=tmp_path, env=job, stdout=log, stderr=log)
        try:
            until(lambda: first.poll() is not None or all((tmp_path / f"begun-{rank}").exists() for rank in range(2)))
            first.send_signal(signal.SIGUSR1)
            assert first.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
        finally:
            first.kill()
            first.wait()
    said = (tmp_path / "said").read_text()
    assert f"scancel --signal=TERM {os.getpid()}\n" in said
    assert f"scontrol requeue {os.getpid()}\n" in said
    assert (tmp_path / f"checkpoint-{os.getpid()}.pt").read_text() == "saved"
    second = subprocess.run(slurm, cwd=tmp_path, env=job, capture_output=True, timeout=PATIENCE, check=False)
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "said").read_text().count("requeue") == 1


@pytest.fixture(scope="module")
def cluster() -> dict:
    return yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text(encoding="utf-8"))


def test_ray_takes_the_cluster_file(cluster):
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    prepared = util.prepare_config(cluster)
    util.validate_config(prepared)
    (node_type,) = prepared["available_node_types"].values()
    assert node_type["min_workers"] == node_type["max_workers"] == len(cluster["provider"]["worker_ips"]) == 1


@pytest.mark.parametrize(
    ("commands", "resource"), [("head_start_ray_commands", "fast"), ("worker_start_ray_commands", "slow")]
)
def test_the_machines_start_with_unequal_resources(cluster, commands, resource):
    scripts = pytest.importorskip("ray.scripts.scripts")
    words = shlex.split(cluster[commands][-1].partition("; ")[2])
    assert words[:2] == ["~/ata-gym/bin/ray", "start"]
    with scripts.start.make_context("ray start", words[2:]) as context:  # reads the options, and starts nothing
        assert set(json.loads(context.params["resources"])) == {resource}
        assert context.params["head"] == (resource == "fast")
        assert str(context.params["port"] or context.params["address"]).endswith("6379")
