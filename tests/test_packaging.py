import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import ata_gym

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
HEAVY = {"matplotlib", "pandas", "polars", "pyarrow", "ray", "rich", "sklearn", "stable_baselines3", "typer", "tqdm"}
HEAVY |= {"moviepy", "PIL", "pygame", "accelerate", "lightning", "torch", "transformers"}


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["version"] == ata_gym.__version__ == citation["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_base_import_loads_nothing_heavy_and_leaves_the_handlers_of_signals_alone():
    code = "import signal, sys; before = signal.getsignal(2), signal.getsignal(15); import ata_gym, ata_policies"
    code += "; assert before == (signal.getsignal(2), signal.getsignal(15)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "ata-gym"], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"ata_gym", "ata_policies", "gymnasium", "numpy"} <= loaded
    assert not loaded & HEAVY


def test_the_base_has_only_its_four_dependencies_and_all_holds_every_extra_but_dev():
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == {"gymnasium", "numpy", "scipy", "numba"}
    (everything,) = map(Requirement, EXTRAS["all"])
    assert (everything.name, everything.extras) == (PROJECT["name"], EXTRAS.keys() - {"all", "dev"})


@pytest.mark.parametrize("group", ["base", *sorted(EXTRAS.keys() - {"all"})])
def test_constraints_are_sorted_exact_public_versions_that_pin_every_dependency_within_its_range(group):
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines), key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9A-Za-z.]+", line) for line in lines)
    pins = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)}
    assert not any(version.is_prerelease for version in pins.values())
    for requirement in map(Requirement, PROJECT["dependencies"] if group == "base" else EXTRAS[group]):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_the_wheel_holds_both_packages_and_nothing_else(tmp_path):
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(parent).as_posix()
        for parent, package in ((ROOT, "ata_gym"), (ROOT / "policies", "ata_policies"))
        for path in (parent / package).rglob("*")
        if path.suffix in {".py", ".typed", ".csv", ".html", ".css", ".js"}
    }
    assert {"ata_gym/py.typed", "ata_policies/py.typed"} <= sources <= packed
    assert not any("__pycache__" in name for name in packed)
    assert {name.partition("/")[0] for name in packed} == {"ata_gym", "ata_policies"}


def test_make_alone_lists_every_command():
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    for command in ("demo", "test", "lint", "docs", "benchmark", "fuzz", "ablation", "versions", "clean", "help"):
        assert re.search(rf"^make {command} +\S", done.stdout, re.MULTILINE)
