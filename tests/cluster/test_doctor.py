"""What the doctor says of this environment, of one with the base packages alone, and of faults made
for it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numba
import pytest

import ata_gym
from ata_gym.cluster import doctor
from ata_gym.cluster.doctor import Finding
from ata_gym.cluster.trials import outcomes
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(doctor, "_LONGEST_TRIAL", PATIENCE)


def by_subject(findings) -> dict[str, Finding]:
    findings = list(findings)
    assert len({finding.subject for finding in findings}) == len(findings)
    return {finding.subject: finding for finding in findings}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, version: str, body: str) -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(body)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(
            f"{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n",
        )

    return make


def test_the_machine_the_base_and_every_extra_appear(monkeypatch):
    monkeypatch.setattr(doctor, "_import_faults", lambda modules: dict.fromkeys(modules, ""))
    findings = by_subject([*doctor.machine(), *doctor.packages()])
    extras = metadata.metadata("ata-gym").get_all("Provides-Extra")
    assert {f"extra {extra}" for extra in extras if extra not in ("all", "dev")} <= findings.keys()
    assert all(
        findings[name].state == "ok"
        for name in ("ata-gym", "python", "system", "processors", "memory", "base")
    )
    for name in ("gymnasium", "numba", "numpy", "scipy"):
        assert f"{name} {metadata.version(name)}" in findings["base"].detail
    assert (
        findings["ata-gym"].detail == f"{ata_gym.__version__} from {Path(ata_gym.__file__).parent}"
    )


def test_what_is_missing_old_or_broken_is_named_with_its_cure(package, monkeypatch):
    package("made-good", "2.3", "")
    package("made-old", "0.9", "")
    package("made-broken", "1.0", "raise OSError('libmade.so: cannot open\\nand more')")
    package("made-leaving", "1.0", "raise SystemExit('no')")
    package("made-crashing", "1.0", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    package("made-ending", "1.0", "import os; os._exit(0)")

    def findings_of(*lines):
        monkeypatch.setattr(metadata, "requires", lambda _name: lines)
        return by_subject(doctor.packages())

    force = "pip install --force-reinstall "
    old = "made-old 0.9 is outside >=1.0"
    good = "made-good 2.3"
    cases = {
        "good": (["Made_Good>=2,<3"], "ok", "Made_Good 2.3", ""),
        "missing": (
            ["made-good>=2", "made-nowhere>=1"],
            "missing",
            f"not installed: made-nowhere; {good}",
            force,
        ),
        "old": (["made-old>=1.0"], "broken", old, force),
        "unwanted": (
            ["made-old>=1.0", "made-nowhere"],
            "missing",
            f"{old}; not installed: made-nowhere",
            force,
        ),
        "broken": (
            ["made-broken", "made-good"],
            "broken",
            f"made-broken 1.0 cannot be imported: OSError: libmade.so: cannot open; {good}",
            force,
        ),
        "leaving": (
            ["made-leaving"],
            "broken",
            "made-leaving 1.0 cannot be imported: SystemExit: no",
            force,
        ),
        "crashing": (
            ["made-crashing", "made-good"],
            "broken",
            f"made-crashing 1.0 cannot be imported: its process was ended by SIGKILL; {good}",
            force,
        ),
        "ending": (
            ["made-ending"],
            "broken",
            "made-ending 1.0 cannot be imported: its process ended",
            force,
        ),
    }
    extras = [
        f'{line}; extra == "{extra}"' for extra, (lines, *_) in cases.items() for line in lines
    ]
    findings = findings_of("made-good", *extras)
    for extra, (_, state, detail, cure) in cases.items():
        whole = cure and f'{cure}"ata-gym[{extra}]"'
        assert findings[f"extra {extra}"] == Finding(f"extra {extra}", state, detail, whole)
    assert findings["base"] == Finding("base", "ok", good)
    for lacking in ("made-nowhere", "made-good<2"):  # nothing works without the base
        assert findings_of(lacking)["base"].state == "broken"


@pytest.mark.skipif(os.name != "posix", reason="it makes symbolic links")
def test_with_the_base_alone_it_says_what_to_install(tmp_path):
    requirements = pytest.importorskip("packaging.requirements")
    names = ["ata-gym"]
    for name in names:  # which grows
        distribution = metadata.distribution(name)
        for line in map(requirements.Requirement, distribution.requires or ()):
            wanted = line.marker is None or line.marker.evaluate({"extra": ""})
            if wanted and line.name not in names:
                names += [line.name]
        for entry in {
            file.parts[0]
            for file in distribution.files or ()
            if file.parts[0] not in {"..", "__pycache__"}
        }:
            if not (tmp_path / entry).exists() and not entry.endswith(".pth"):
                (tmp_path / entry).symlink_to(distribution.locate_file(entry))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, [tmp_path, ROOT, ROOT / "policies"])),
    }
    line = [sys.executable, "-S", "-m", "ata_gym", "doctor"]  # without the packages of this Python
    ended = subprocess.run(
        line,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    for line in (
        "missing  extras: packaging is not installed",
        "missing  torch: not installed",
        "ok       kernels: ",
        'missing  ray: not installed\n         -> pip install "ata-gym[cluster]"',
    ):
        assert f"\n{line}" in ended.stdout


def test_a_trial_that_hangs_is_ended(package):
    package(
        "made-hanging",
        "1.0",
        "import signal, time; signal.signal(signal.SIGINT, lambda *_: 0); time.sleep(9e9)",
    )
    # as long as a busy machine needs to come to the module that hangs
    for seconds in (
        2,
        30,
        PATIENCE,
    ):
        (results,) = outcomes([["imports", "math", "made_hanging"]], seconds)
        if "math" in results:
            break
    assert results == {"math": "", "fault": "it took too long"}


def test_two_processes_add_numbers_with_gloo_and_each_gpu_computes_right(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere")
    broken = doctor._backend("gloo", built=True, devices=0)
    assert broken.state == "broken"
    assert "set GLOO_SOCKET_IFNAME to a network interface such as lo" in broken.cure
    # With the cure it works.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    findings = by_subject(doctor.torch_findings())
    assert findings["backend gloo"] == Finding(
        "backend gloo",
        "ok",
        "two processes added their numbers",
    )
    assert findings["torchrun"].state == "ok"
    assert torch.__version__ in findings["torch"].detail
    assert findings["backend nccl"].state in {"ok", "missing"}
    for index in range(torch.cuda.device_count()):
        assert findings[f"device cuda:{index}"].state == "ok"
        assert torch.cuda.get_device_name(index) in findings[f"device cuda:{index}"].detail


FACTS = {
    "version": "2.9.0",
    "CUDA version": "12.8",
    "driver": None,
    "devices": 0,
    "torchrun": "",
    "backends": ["gloo"],
}
ONE_DEVICE = {"driver": "570", "devices": 1, "cuda:0 model": "H200, 140.0 GiB"}


@pytest.mark.parametrize(
    ("facts", "sums", "expected"),
    [
        (
            {"CUDA version": None},
            ["", ""],
            {"device cuda": ("missing", "there is no NVIDIA driver", "")},
        ),
        (
            {"CUDA version": None, "driver": "570"},
            ["", ""],
            {"device cuda": ("missing", "driver of the machine is 570", "pytorch.org/get-started")},
        ),
        (
            {"driver": "570", "start": "too old"},
            ["", ""],
            {"device cuda": ("broken", "none: too old", "pytorch.org")},
        ),
        (
            {"start": "no driver"},
            ["", ""],
            {"device cuda": ("missing", "torch sees none: no driver", "")},
        ),
        (
            ONE_DEVICE | {"cuda:0": "", "backends": ["gloo", "nccl"]},
            ["", ""],
            {
                "device cuda:0": ("ok", "H200, 140.0 GiB; it computes right", ""),
                "backend nccl": (
                    "missing",
                    "not tried: it needs two CUDA devices, and torch sees 1",
                    "",
                ),
            },
        ),
        (
            ONE_DEVICE | {"cuda:0": "no kernel image"},
            ["", ""],
            {"device cuda:0": ("broken", "140.0 GiB: no k", "pytorch")},
        ),
        (
            {"driver": "570", "devices": 1, "fault": "it took too long"},
            ["", ""],
            {"device cuda:0": ("broken", "took too long", "pytorch")},
        ),
        (
            {},
            ["no address", ""],
            {
                "backend gloo": ("broken", "could not add: no address", "GLOO_SOCKET_IFNAME"),
                "backend nccl": ("missing", "built without it", ""),
            },
        ),
        (
            {"torchrun": "ImportError: x"},
            ["", ""],
            {"torchrun": ("broken", "does not start: ImportError: x", "pip")},
        ),
    ],
)
def test_what_torch_lacks_has_a_cure(facts, sums, expected, monkeypatch):
    pytest.importorskip("torch")

    def told(trials, _seconds):
        if trials == [["torch"]]:
            return [FACTS | facts]
        return [{"sum": fault} for fault in sums]

    monkeypatch.setattr(doctor, "outcomes", told)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    findings = by_subject(doctor.torch_findings())
    for subject, (state, detail, cure) in expected.items():
        assert findings[subject].state == state
        assert detail in findings[subject].detail
        assert cure in findings[subject].cure
        assert bool(cure) == bool(findings[subject].cure)


def test_kernels_say_where_they_are_kept_or_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    (kept,) = doctor.compiled_kernels()
    assert kept == Finding("kernels", "ok", f"they compile, and are kept in {tmp_path / 'ata-gym'}")
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "file"))
    (lost,) = doctor.compiled_kernels()
    assert lost.state == "missing"
    # The cure.
    assert lost.cure == "set NUMBA_CACHE_DIR to a folder that can be written"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "folder"))
    numba.config.reload_config()
    (kept,) = doctor.compiled_kernels()
    assert kept.state == "ok"
