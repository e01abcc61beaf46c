"""What the doctor says of this environment, of one with the base packages alone, and of faults made for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement as Published

import ata_gym
from ata_gym.cluster.doctor import devices, machine, on_ray, packages
from ata_gym.cluster.doctor.child_processes import Outcome, Trial
from ata_gym.cluster.doctor.examination import examine
from ata_gym.cluster.doctor.finding import Finding, as_json, exit_code
from ata_gym.cluster.doctor.on_ray import ray_findings
from ata_gym.cluster.doctor.packages import Requirement
from tests.cluster.sockets import listening
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMMAND = ["-m", "ata_gym.cluster.doctor"]


def installed(*names: str) -> None:
    """Skip a test where one of these packages is not installed, without importing them."""
    for name in names:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed")


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    assert len({finding.subject for finding in findings}) == len(findings)
    return {finding.subject: finding for finding in findings}


@pytest.fixture(scope="module")
def here() -> dict[str, Finding]:
    """The findings of this environment, from the one JSON document that the command prints."""
    done = subprocess.run([sys.executable, *COMMAND, "--json"], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    findings = [Finding(**finding) for finding in document["findings"]]
    assert as_json(findings) == done.stdout.strip()
    assert done.returncode == exit_code(findings) == (not document["works"])
    return by_subject(findings)


def test_every_base_package_and_every_extra_of_the_metadata_appears(here):
    extras = metadata.metadata("ata-gym").get_all("Provides-Extra")
    assert {f"extra {extra}" for extra in extras} <= here.keys()
    for name in ("gymnasium", "numba", "numpy", "scipy"):
        assert here[name].state == "ok"
        assert metadata.version(name) in here[name].detail
    for name in ("ata-gym", "python", "system", "processors", "memory", "kernels"):
        assert here[name].state == "ok"
    assert ata_gym.__version__ in here["ata-gym"].detail
    assert str(Path(ata_gym.__file__).parent) in here["ata-gym"].detail


def test_two_processes_add_numbers_with_gloo(here):
    installed("torch")
    assert here["backend gloo"] == Finding("backend gloo", "ok", "two processes added their numbers")
    assert here["torchrun"].state == "ok"
    assert here["device cpu"].state == "ok"
    assert here["backend nccl"].state in {"ok", "missing"}


@pytest.mark.gpu
def test_each_gpu_computes_right(here):
    import torch

    for index in range(torch.cuda.device_count()):
        finding = here[f"device cuda:{index}"]
        assert finding.state == "ok"
        assert torch.cuda.get_device_name(index) in finding.detail


def requirements() -> list[str]:
    return [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]


@pytest.mark.parametrize("line", sorted({*requirements(), *metadata.requires("ata-gym")}))
def test_requirements_are_read_as_packaging_reads_them(line):
    ours, theirs = Requirement.read(line), Published(line)
    assert ours.name == theirs.name
    assert theirs.marker is None or str(theirs.marker) == f'extra == "{ours.extra}"'
    for version in ("0.9", "1.1", "1.1.0", "1.10", "2", "2.0.1", "2.6.0+cpu", "2.10", "13.0", "2025.2", "2025.12.1"):
        assert ours.holds(version) == (version in theirs.specifier), version


class Site:
    """A folder on the path with packages made for a test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    def add(self, name: str, version: str, body: str, entry_points: str = "") -> None:
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(body)
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
        (info / "entry_points.txt").write_text(entry_points)

    def require(self, *lines: str) -> dict[str, Finding]:
        self._patch.setattr(metadata, "requires", lambda _name: list(lines))
        return by_subject(list(packages.packages()))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_what_is_missing_old_or_broken_is_named_with_its_cure(site):
    site.add("made-good", "2.3", "")
    site.add("made-old", "0.9", "")
    site.add("made-broken", "1.0", "raise OSError('libmade.so: cannot open\\nand more')")
    site.add("made-leaving", "1.0", "raise SystemExit('no')")
    site.add("made-crashing", "1.0", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    lines = {
        "good": ["made-good>=2,<3"],
        "missing": ["made-good>=2", "made-nowhere>=1"],
        "old": ["made-old>=1.0"],
        "unwanted": ["made-old>=1.0", "made-nowhere>=1"],
        "broken": ["made-broken", "made-good"],
        "leaving": ["made-leaving"],
        "crashing": ["made-crashing", "made-good"],
        "several": ["made-good", "made-old>=1.0"],
    }
    found = site.require(*(f"{line}; extra == '{extra}'" for extra, those in lines.items() for line in those))
    for extra, state, detail, cure in (
        ("good", "ok", "made-good 2.3", ""),
        ("missing", "missing", "not installed: made-nowhere; installed: made-good", 'pip install "ata-gym[missing]"'),
        ("old", "broken", "made-old 0.9 is outside >=1.0", 'pip install "ata-gym[old]"'),
        ("unwanted", "missing", "made-old 0.9 is outside >=1.0; not installed: made-nowhere", "ata-gym[unwanted]"),
        ("broken", "broken", "made-broken 1.0 cannot be imported: OSError: libmade.so: cannot open; installed",
         "pip install --force-reinstall made-broken"),
        ("leaving", "broken", "made-leaving 1.0 cannot be imported: SystemExit: no", "made-leaving"),
        ("crashing", "broken", "made-crashing 1.0 cannot be imported: the process was ended by SIGKILL", "crashing"),
        ("several", "broken", "made-old 0.9", 'pip install "ata-gym[several]"'),
    ):  # fmt: skip
        finding = found[f"extra {extra}"]
        assert finding.state == state, finding
        assert detail in finding.detail
        assert cure in finding.cure
        assert "and more" not in finding.detail


def test_a_base_package_must_be_there_in_its_range(site):
    site.add("made-old", "0.9", "")
    found = site.require("made-old>=1.0", "made-nowhere>=1")
    assert found["made-old"] == Finding("made-old", "broken", "0.9 is outside >=1.0", 'pip install "made-old>=1.0"')
    assert found["made-nowhere"].state == "broken"
    assert exit_code(found.values()) == 1


def test_an_extra_that_consists_of_others_names_them(site):
    site.add("made-good", "2.3", "")
    site.add("made-other", "1.0", "")
    found = site.require(*(f"made-{n}; extra == '{e}'" for n, e in (
        ("good", "one"), ("other", "two"), ("good", "all"), ("other", "all"))))  # fmt: skip
    assert found["extra all"].detail == "one, two"


def test_policies_of_packages_that_do_not_load_are_broken(site):
    body = "from ata_policies.allocation.baselines import Uta\nclass Mine(Uta): pass\nprint('loaded')\n"
    group = "[ata_gym.policies]\n"
    site.add("made-policies", "1.0", body, f"{group}mine = made_policies:Mine\ngone = made_policies:Gone\n")
    site.add(
        "made-failing", "1.0", "import not_there", f"{group}fails = made_failing:Fails\nuta = made_policies:Mine\n"
    )
    found = by_subject(list(packages.policies()))
    assert "mine" in found["more policies"].detail.split(", ")
    assert found["policy gone"].state == found["policy fails"].state == found["policy uta"].state == "broken"
    assert found["policy fails"].cure == "pip install -U made-failing"
    assert "not_there" in found["policy fails"].detail


def base_only(folder: Path) -> Path:
    """The interpreter of a new environment that has the base packages, of those installed here, and no other."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    todo, done = ["ata-gym"], set()
    while todo:
        name = todo.pop()
        distribution = metadata.distribution(name)
        done.add(name)
        for line in map(Published, distribution.requires or ()):
            wanted = line.marker is None or line.marker.evaluate({"extra": ""})
            todo += [line.name] if wanted and line.name not in done else []
        for entry in {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (site / entry).exists() and not entry.endswith(".pth"):
                (site / entry).symlink_to(distribution.locate_file(entry))
    return folder / "bin" / "python"


@pytest.mark.skipif(os.name != "posix", reason="it makes symbolic links")
def test_with_the_base_alone_it_says_what_to_install(tmp_path):
    python = base_only(tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "policies")])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [str(python), *arguments]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)

    told = run(*COMMAND)
    assert (told.returncode, told.stderr) == (0, "")
    for extra in ("bench", "train", "rl", "cluster", "integrations"):
        assert f'-> pip install "ata-gym[{extra}]"' in told.stdout
    for said in ("ok       numba: ", "ok       kernels: ", "ok       device cpu: ", "missing  backends: torch is not",
                 "missing  ray: not installed", "missing  extra bench: not installed: "):  # fmt: skip
        assert f"\n{said}" in told.stdout
    command = run("-m", "ata_gym")
    assert command.returncode == 1
    assert "python -m ata_gym.cluster.doctor" in command.stderr
    refused = run(*COMMAND, "--address", "somewhere")
    assert refused.returncode == 2
    assert "must be HOST:PORT or ray://HOST:PORT, not 'somewhere'" in refused.stderr


def test_a_trial_that_hangs_or_fails_leaves_no_process(site):
    site.add("made-hanging", "1.0", "import signal, time; signal.signal(signal.SIGINT, lambda *_: 0); time.sleep(600)")
    for seconds in (2, 30, PATIENCE):  # as long as a busy machine needs to come to the module that hangs
        with Trial([["imports", "math", "made_hanging"]], seconds=seconds) as trial:
            (outcome,) = trial.outcomes()
        assert outcome.fault == f"it took longer than {seconds:g} s"
        if outcome.reports:
            break
    assert outcome.reports == {"math": ""}
    with Trial([["imports", "made_hanging"], ["imports", "made_hanging", "wrong"], ["no-trial"]], seconds=600) as trial:
        processes = list(trial._processes)
        first, second, failed = trial.outcomes()
    assert all(process.returncode is not None for process in processes)
    assert first.fault == second.fault == "another process of the trial failed"
    assert failed.fault == "KeyError: 'no-trial'"
    with Trial([["imports", "made_hanging"]], seconds=600) as trial:  # and its block ends, for whatever reason
        processes = list(trial._processes)
    assert processes[0].returncode is not None
    assert not trial._folder.exists()


FACTS = {"version": "2.9.0", "cuda": "12.8", "backends": ["gloo", "nccl"], "devices": 0, "gloo": "", "torchrun": ""}


@pytest.mark.parametrize(
    ("facts", "seen", "fault", "expected"),
    [
        ({"cuda": None}, 0, "", {"device cuda": ("missing", "built without CUDA", "")}),
        ({"cuda": None}, 2, "", {"device cuda": ("missing", "the driver shows 2 GPUs", "pytorch.org/get-started")}),
        ({"start": "driver too old"}, 1, "", {"device cuda": ("broken", "1 GPU: driver too old", "pytorch.org")}),
        ({"start": "no driver"}, 0, "", {"device cuda": ("missing", "sees none: no driver", "")}),
        ({"devices": 1, "cuda:0": {"name": "H200", "memory": 2**37, "fault": ""}}, 1, "", {
            "device cuda:0": ("ok", "H200, 128.0 GiB", ""),
            "backend nccl": ("missing", "not tried: it needs two CUDA devices, and torch sees 1", "")}),
        ({"devices": 1, "cuda:0": {"name": "K40", "memory": 0, "fault": "no kernel image"}}, 1, "", {
            "device cuda:0": ("broken", "K40: no kernel image", "pytorch.org")}),
        ({"devices": 1}, 1, "it took longer than 20 s", {"device cuda:0": ("broken", "longer than 20 s", "pytorch")}),
        ({"gloo": "RuntimeError: no address"}, 0, "", {"backend gloo": ("broken", "no address", "GLOO_SOCKET_IFNAME")}),
        ({"backends": ["gloo", "mpi"]}, 0, "", {
            "backend nccl": ("missing", "built without it", ""), "backend mpi": ("ok", "not tried", "")}),
        ({"torchrun": "ImportError: x"}, 0, "", {"torchrun": ("broken", "does not start: ImportError: x", "pip")}),
    ],
)  # fmt: skip
def test_what_torch_lacks_is_said_with_its_cure(facts, seen, fault, expected, monkeypatch):
    class Played:
        def __init__(self, commands, seconds):
            assert len(commands) == 2

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def outcomes(self):
            return [Outcome(FACTS | facts, fault), Outcome({"gloo": ""})]

    installed("torch")
    monkeypatch.setattr(devices, "Trial", Played)
    monkeypatch.setattr(devices, "gpus", lambda: seen)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = by_subject(list(devices.torch_findings()))
    for subject, (state, detail, cure) in expected.items():
        assert found[subject].state == state
        assert detail in found[subject].detail
        assert cure in found[subject].cure
        assert bool(cure) == bool(found[subject].cure)


@pytest.mark.skipif(os.name != "posix", reason="the command is a script of a shell")
def test_gpus_are_counted_without_torch(tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 'GPU 0: one (UUID: 1)'\necho '  MIG 1g'\necho 'GPU 1: two (UUID: 2)'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.gpus() == 2


def test_limits_of_the_control_group_count(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/jobs/mine\n")
    (tmp_path / "jobs" / "mine").mkdir(parents=True)
    everything = machine.processors(tmp_path / "none", own)
    assert everything >= 1
    (tmp_path / "jobs" / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "jobs" / "mine" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "jobs" / "mine" / "memory.max").write_text("1048576\n")
    (tmp_path / "jobs" / "memory.max").write_text("max\n")
    assert machine.processors(tmp_path, own) == 0.5
    assert machine.memory(tmp_path, own) == 2**20
    shutil.rmtree(tmp_path / "jobs")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("25000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.processors(tmp_path, own) == 0.25


def test_kernels_say_where_they_are_kept_or_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr(machine._config, "CACHE_DIR", str(tmp_path))
    (kept,) = machine.compiled_kernels()
    assert kept.state == "ok"
    assert str(tmp_path) in kept.detail
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(machine._config, "CACHE_DIR", str(tmp_path / "file"))
    (lost,) = machine.compiled_kernels()
    assert lost.state == "missing"
    assert "NUMBA_CACHE_DIR" in lost.cure


def test_ray_starts_and_a_cluster_names_its_nodes(monkeypatch):
    installed("ray")
    for limit in ("_START_SECONDS", "_NODE_SECONDS"):
        monkeypatch.setattr(on_ray, limit, PATIENCE)
    with listening() as addresses:
        (started,) = ray_findings(start=True, address=None)
    addresses.check("gcs_server", "raylet")
    assert (started.subject, started.state) == ("ray", "ok"), started
    folder = tempfile.mkdtemp(dir="/tmp", prefix="r")
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder, "PYTHONWARNINGS": "ignore"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environment, text=True, **pipes) as cluster:
        try:
            lines = iter(cluster.stdout.readline, "")
            address = next(line.split()[1] for line in lines if line.startswith("address "))
            found = list(ray_findings(start=False, address=address))
        finally:
            cluster.communicate("end\n", timeout=PATIENCE)
            shutil.rmtree(folder, ignore_errors=True)
    assert [finding.state for finding in found] == ["ok"] * 3, found
    assert found[0].subject == "ray"
    assert all(finding.subject.startswith("node ") for finding in found[1:])
    nodes = " ".join(finding.detail for finding in found[1:])
    for said in ("CPU 1", "CPU 2", "slow 1", f"ata_gym {ata_gym.__version__}"):
        assert said in nodes


CLUSTER = """
from ray.cluster_utils import Cluster
small = dict(object_store_memory=80 * 2**20, include_dashboard=False)
cluster = Cluster()
cluster.add_node(num_cpus=1, **small)
cluster.add_node(num_cpus=2, resources={"slow": 1}, **small)
print("address", cluster.address, flush=True)
input()
cluster.shutdown()
"""


def test_a_cluster_that_is_not_there_is_one_finding():
    installed("ray")
    with socket.socket() as closed:  # bound, so that nobody else takes the port, and deaf
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        *_, finding = ray_findings(start=False, address=address)
    assert (finding.subject, finding.state) == (f"cluster {address}", "broken")
    assert finding.detail.startswith("it cannot be joined: ConnectionRefusedError")
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        examine(address="somewhere")
