"""A sweep on a real Ray cluster of several nodes: what comes, goes or dies there leaves the bytes
of a local run.
"""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from typer.testing import CliRunner

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.cost_regret import CostRun
from ata_gym.bench.runner.jobs import Effort, KilledError, play_jobs
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.store.folder import Folder, open_folder
from ata_gym.bench.store.provenance import provenance
from ata_gym.cli import app
from ata_gym.cluster.on_ray.connection import connected, quiet_ray
from ata_gym.cluster.on_ray.sweeps.sweep import play_on_ray
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.files import manifest
from ata_gym.utils.files.sealed import read_sealed
from ata_policies.allocation.baselines import Uta
from ata_policies.facts import UndeclaredError, undeclared as undeclared_sentence
from tests.bench.by_hand import play_all
from tests.waiting import PATIENCE, until, without_progress

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Ray's test clusters need POSIX")

POLICIES = ["ata", "ata-empirical-icml"]
ROUNDS = 600


class Broken(Uta):
    def __init__(self, setting, *, kill=False, peek=False, seed=0):
        super().__init__(setting, seed=seed)
        self.kill = kill
        self.peek = peek

    def allocate(self, state):
        if state.round[0] > 3:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.peek:
                return self.setting.pool.mean()
            raise RuntimeError("no idea")
        return super().allocate(state)


class Gated(Uta):
    """Is slow from the middle on, and does not end, until there is a folder ``gate``; notes in
    which round each of its processes began.
    """

    def __init__(self, setting, *, gate, seed=0):
        super().__init__(setting, seed=seed)
        self.gate = Path(gate)
        self.calls = 0

    def allocate(self, state):
        self.calls += 1
        if self.calls == 2:  # the first may ask for the form of a checkpoint
            with self.gate.with_suffix(".txt").open("a") as file:
                file.write(f"{state.round[0]}\n")
        if state.round[0] > ROUNDS / 2 and not self.gate.is_dir():
            time.sleep(0.1)  # a job can be stopped between two rounds
        while state.round[0] == ROUNDS - 1 and not self.gate.is_dir():
            time.sleep(0.01)
        return super().allocate(state)


@pytest.fixture(scope="module")
def cluster(running: ExitStack) -> Iterator[Any]:
    running.close()  # a process can be in one cluster only
    quiet_ray("The test")
    utils = pytest.importorskip("ray.cluster_utils")
    soon = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 2,
    }
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    with (
        TemporaryDirectory(
            prefix="r",
            dir="/tmp",
            ignore_cleanup_errors=True,
        ) as folder,  # sockets need a short name
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = utils.Cluster(
            True,
            head_node_args={"include_dashboard": False, "_system_config": soon, **node},
        )
        cluster.add_node(**node)
        with connected(cluster.address):
            yield cluster
        cluster.shutdown()


def experiment(rounds: int = ROUNDS, scenario: str = "icml2025-regret") -> Experiment:
    return Experiment.on_scenario(scenario, rounds=rounds, seeds=2)


def jobs(out: Path) -> list[Job]:
    played = experiment(300, "changing-permuted-linear-n51"), experiment()
    folders = [open_folder(out / str(k), each.config()) for k, each in enumerate(played)]
    return [
        Job(each, policy, folder, CostRun)
        for each, folder in zip(played, folders, strict=True)
        for policy in POLICIES
    ]


def contents(path: Path) -> dict[str, bytes]:
    """All files of a folder but the file of wall-clock times, the files that name its owner or the
    command that made it, and the manifest, which lists these.
    """
    files = [file for file in path.rglob("*") if file.is_file() and ".ata-gym." not in file.name]
    skipped = {"timings.json", "about.json", "report.html", manifest.NAME}
    return {
        str(file.relative_to(path)): file.read_bytes() for file in files if file.name not in skipped
    }


@pytest.mark.usefixtures("cluster")
def test_nodes_leave_the_bytes_of_a_local_run(tmp_path):
    assert play_jobs(jobs(tmp_path / "local"), Effort(jobs=1)) == {}
    reports = []
    assert (
        play_jobs(
            jobs(tmp_path / "ray"),
            Effort(runner=play_on_ray),
            lambda *progress: reports.append(progress),
        )
        == {}
    )
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert {(job.policy, rounds) for job, rounds in reports} >= {
        (policy, k) for policy in POLICIES for k in (300, ROUNDS)
    }


def rounds_of(checkpoint: Path) -> int:
    try:
        with np.load(io.BytesIO(read_sealed(checkpoint))) as file:
            return int(file["tree.1"])
    except FileNotFoundError:  # also while one takes the place of the one before
        return 0


def bench(cluster: Any, out: Path, policies: list[str], options: str) -> subprocess.Popen[str]:
    """The command, in a process of its own, since Ray prints more where it was imported before."""
    line = (
        f"bench --scenario icml2025-regret --seeds 2 --workers ray {options} --policies"
        f" {','.join(policies)}"
    )
    command = [
        sys.executable,
        "-m",
        "ata_gym",
        *line.split(),
        "--out",
        str(out),
        "--address",
        cluster.address,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_local_run_goes_on_where_the_driver_was_ended(cluster, tmp_path):
    """By SIGKILL, and by SIGTERM where the next one has gone on from there, while the policy is in
    the middle.
    """
    out = tmp_path / "out"
    gate = tmp_path / "gate"
    played = experiment()
    policies = [f"{__name__}:Gated:gate={gate}"]
    begun = gate.with_suffix(".txt")
    stopped = "ata-gym: stopped by SIGTERM; the same command goes on from here\n"
    checkpoint = Folder(out).checkpoint(policies[0])
    for starts, how, ended in (
        (1, signal.SIGKILL, (-9, "", "")),
        (2, signal.SIGTERM, (143, "", stopped)),
    ):
        process = bench(cluster, out, policies, f"--rounds {ROUNDS} --save-every 0")
        until(lambda: rounds_of(checkpoint), process)
        until(
            lambda starts=starts: begun.exists() and len(begun.read_text().split()) == starts,
            process,
        )
        process.send_signal(how)
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, output, without_progress(errors)) == ended
    gate.mkdir()
    for folder in (out, tmp_path / "whole"):
        assert (
            play_all(
                played,
                policies,
                open_folder(folder, played.config()),
                CostRun,
                Effort(jobs=1),
            )
            == {}
        )
    again = [int(line) for line in begun.read_text().split()]
    assert min(again[1:3]) > again[0]
    assert contents(out) == contents(tmp_path / "whole")


def test_failures_are_reported_as_on_this_machine(cluster, tmp_path):
    raises, dies, peeks = (f"{__name__}:Broken{how}" for how in ("", ":kill=True", ":peek=True"))
    process = bench(cluster, tmp_path, [raises, dies, peeks, "uta"], "--rounds 50")
    output, errors = process.communicate(timeout=PATIENCE)
    assert len(list((tmp_path / "failures").glob("*"))) == 3, errors
    notes = {file.stem: file for file in (tmp_path / "failures").iterdir()}
    lines = [line.strip() for line in Path(__file__).read_text("utf-8").splitlines()]
    if Path(__file__).is_relative_to(Path.cwd()):
        script = Path(__file__).relative_to(Path.cwd())
    else:
        script = __file__
    sources = 'raise RuntimeError("no idea")', "return self.setting.pool.mean()"
    places = [f"{script}, line {lines.index(source) + 1}: {source}" for source in sources]
    where = "in round 4, row 0 (seed 0) and 1 more of 2 rows"
    undeclared = UndeclaredError(undeclared_sentence("Broken", "nothing", "setting.pool", "pool"))
    assert sorted(without_progress(errors).splitlines()) == [
        (
            f"ata-gym: {raises} failed: {where}: RuntimeError: no idea ({places[0]}) (see"
            f" {notes[quote(raises)]})"
        ),
        f"ata-gym: {dies} failed: {KilledError()} (see {notes[quote(dies)]})",
        (
            f"ata-gym: {peeks} failed: {where}: UndeclaredError: {undeclared} ({places[1]}) (see"
            f" {notes[quote(peeks)]})"
        ),
    ]
    assert process.returncode == 1
    assert "raylet" not in output
    assert ", in allocate\n" in notes[quote(raises)].read_text("utf-8")
    assert {name for name in contents(tmp_path) if "results" in name} == {
        "results/uta.json",
        "results/uta.parquet",
    }


@pytest.mark.usefixtures("cluster")
def test_a_node_with_other_code_is_refused(tmp_path, monkeypatch):
    recorded = provenance("uta")
    code = {**recorded["code"], "ata_gym.pools.pool": "another"}
    monkeypatch.setattr(
        "ata_gym.bench.runner.policy_run.provenance",
        lambda *_: {**recorded, "code": code, "numpy": "1.0"},
    )
    folder = open_folder(tmp_path, experiment(50).config())
    with pytest.raises(
        ValueError,
        match=(
            r"the node .+ has other code .+: the code of ata-gym \(ata_gym.pools.pool\) is another"
            r" one, numpy is "
        ),
    ):
        play_all(experiment(50), ["uta"], folder, effort=Effort(runner=play_on_ray))
    assert not contents(tmp_path).keys() - {"config.json"}


def test_where_a_node_is_lost_its_job_goes_on_from_the_checkpoint_on_another(cluster, tmp_path):
    played = experiment()
    gates = [tmp_path / "a", tmp_path / "b"]
    policies = [f"{__name__}:Gated:gate={gate}" for gate in gates]
    folder = open_folder(tmp_path / "ray", played.config())
    reached = [0]
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(
            play_all,
            played,
            policies,
            folder,
            effort=Effort(save_every=0.0, runner=play_on_ray),
        )
        try:
            while min(reached) < ROUNDS / 3 and not playing.done():  # then each node plays one
                time.sleep(0.01)
                reached = [rounds_of(folder.checkpoint(policy)) for policy in policies]
            for node in list(cluster.worker_nodes):
                cluster.remove_node(node, allow_graceful=False)
        finally:
            # behind closed gates the policies would wait for ever, and an error be said by nobody
            for gate in gates:
                gate.mkdir()
        assert playing.result() == {}
    begun = [[int(line) for line in gate.with_suffix(".txt").read_text().split()] for gate in gates]
    assert sorted(map(len, begun)) == [1, 2]
    assert all(rounds[0] < 3 for rounds in begun)
    assert all(
        again > before for (_, *rest), before in zip(begun, reached, strict=True) for again in rest
    )
    assert (
        play_all(
            played,
            policies,
            open_folder(tmp_path / "local", played.config()),
            effort=Effort(jobs=1),
        )
        == {}
    )
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


LINE = f"bench --scenario icml2025-regret --rounds {ROUNDS} --policies uta"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--address auto", "--address only goes with --workers ray"),
        ("--workers ray --address here", "--address must be auto, or host:port of Ray's head node"),
        ("--workers ray --address 127.0.0.1:1", "no Ray cluster can be joined at 127.0.0.1:1"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, options, sentence):
    result = CliRunner().invoke(
        app,
        [*LINE.split(), "--out", str(tmp_path / "out"), *options.split()],
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("ata-gym: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = CliRunner().invoke(
        app,
        [*LINE.split(), "--out", str(tmp_path / "out"), "--workers", "ray"],
    )
    assert isinstance(result.exception, MissingExtraError)
    assert str(result.exception) == '--workers ray needs ray: pip install "ata-gym[cluster]"'
    assert not (tmp_path / "out").exists()
