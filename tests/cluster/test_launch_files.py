"""The files in notebooks/cluster that start jobs, as far as they can be tried without Slurm and
other machines.
"""

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
from typing import Any

import pytest
import yaml

from tests.waiting import PATIENCE, until

FOLDER = Path(__file__).parents[2] / "notebooks" / "cluster"
SLURM = FOLDER / "slurm.sh"
SCRIPT = SLURM.read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or os.name != "posix",
    reason="needs bash",
)


def test_the_options_of_sbatch_fit_the_variables():
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", SCRIPT, re.MULTILINE))
    assert (
        options["nodes"].partition("-")[0]
        == re.search(r"^MIN_NODES=(\d+)", SCRIPT, re.MULTILINE)[1]
    )
    assert options["ntasks-per-node"] == "1"
    assert re.fullmatch(r"B:USR1@\d+", options["signal"])
    seconds = int(options["signal"].partition("@")[2])
    assert int(re.search(r"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=(\d+)", SCRIPT)[1]) < seconds
    assert {"requeue", "no-kill"} <= options.keys()


TRAIN = """
import argparse, os, pathlib, signal, sys, time
parser = argparse.ArgumentParser()
for name in ("--steps", "--budget", "--policy", "--checkpoint"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
rank, place = os.environ["RANK"], pathlib.Path(given.checkpoint)
def save(*_):
    if rank == "0":
        place.write_text("saved")
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
pathlib.Path(f"begun-{rank}").touch()
time.sleep(900)
"""

COMMANDS = {  # stand-ins for Slurm's, on one machine
    "python": f'exec "{sys.executable}" "$@"',  # a link would look for its packages beside itself
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; echo "$$" > srun.pid; exec "$@"',
    "scancel": 'echo "scancel $*" >> said; kill -TERM "$(cat srun.pid)"',
    "scontrol": (
        'echo "scontrol $*" >> said; if [ "$1" = show ]; then echo localhost; echo other; fi'
    ),
}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """How the script is run in a folder where Slurm's commands are the stand-ins above; the space
    must be quoted.
    """
    folder = tmp_path / "a job"
    commands = folder / "venv" / "bin"
    commands.mkdir(parents=True)
    for name, body in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    (folder / "train.py").write_text(TRAIN)
    text = SCRIPT.replace('VENV="$HOME/ata-gym"', f'VENV="{folder / "venv"}"').replace(
        "MIN_NODES=2",
        "MIN_NODES=1",
    )
    (folder / "slurm.sh").write_text(text)
    variables = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_CPUS_PER_TASK": "2",
    }
    yield {"args": ["bash", "slurm.sh"], "cwd": folder, "env": os.environ | variables}
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "srun.pid").read_text()), 0)  # torchrun has ended


def test_the_time_limit_saves_and_queues_again_and_the_next_start_ends(job):
    pytest.importorskip("torch")
    folder = job["cwd"]
    with (folder / "log").open("wb") as log:
        first = subprocess.Popen(**job, stdout=log, stderr=log)
        try:
            until(
                lambda: (
                    first.poll() is not None
                    or all((folder / f"begun-{rank}").exists() for rank in range(2))
                ),
            )
            first.send_signal(signal.SIGUSR1)
            assert first.wait(PATIENCE) == 0, (folder / "log").read_text()
        finally:
            first.kill()
            first.wait()
    output = (folder / "said").read_text()
    assert f"scancel --signal=TERM {os.getpid()}\n" in output
    assert f"scontrol requeue {os.getpid()}\n" in output
    assert (folder / f"checkpoint-{os.getpid()}.pt").read_text() == "saved"
    # the training has nothing left to do
    (folder / "venv" / "bin" / "srun").write_text(
        "#!/bin/sh\n",
    )
    second = subprocess.run(**job, capture_output=True, timeout=PATIENCE, check=False)
    assert second.returncode == 0, second.stderr
    assert (folder / "said").read_text().count("requeue") == 1


def test_ray_takes_the_cluster_file_and_the_machines_start_with_unequal_resources():
    util, scripts = (
        pytest.importorskip(name)
        for name in ("ray.autoscaler._private.util", "ray.scripts.scripts")
    )
    pytest.importorskip("jsonschema")
    cluster = yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text(encoding="utf-8"))
    prepared = util.prepare_config(cluster)
    util.validate_config(prepared)
    (node_type,) = prepared["available_node_types"].values()
    assert (
        node_type["min_workers"]
        == node_type["max_workers"]
        == len(cluster["provider"]["worker_ips"])
        == 1
    )
    for machine, resource in (("head", "fast"), ("worker", "slow")):
        arguments = shlex.split(cluster[f"{machine}_start_ray_commands"][-1].partition("; ")[2])
        assert arguments[:2] == ["~/ata-gym/bin/ray", "start"]
        # reads the options, and starts nothing
        with scripts.start.make_context(
            "ray start",
            arguments[2:],
        ) as context:
            assert set(json.loads(context.params["resources"])) == {resource}
            assert context.params["head"] == (machine == "head")
            assert str(context.params["port"] or context.params["address"]).endswith("6379")
