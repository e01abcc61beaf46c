import doctest
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import ata_gym
from ata_gym.bench.report.page.citation import bibtex
from tests.test_pages import targets

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
HEAVY = {
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "ray",
    "rich",
    "sklearn",
    "stable_baselines3",
    "typer",
    "tqdm",
}
HEAVY |= {"moviepy", "PIL", "pygame", "accelerate", "lightning", "torch", "transformers"}
HEAVY |= {"numba", "scipy"}


def test_the_version_is_the_same_everywhere_and_bibtex_is_that_of_the_citation_file():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["version"] == ata_gym.__version__ == citation["version"]
    (ours, paper), (known,) = bibtex().split("\n\n"), citation["references"]
    assert re.match(rf"@software{{.*{re.escape(ata_gym.__version__)}", ours, re.DOTALL)
    authors = " and ".join(
        f"{one['family-names']}, {one['given-names']}" for one in known["authors"]
    )
    assert re.fullmatch(rf"@inproceedings.*{known['title']}.*\{{{authors}\}}.*", paper, re.DOTALL)


RELEASED = re.compile(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d")
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def check_changelog(text: str, version: str) -> None:
    """Assert that the versions fall from the one in force, each with entries by their kind."""
    _, unreleased, *released = re.split(r"^## ", text, flags=re.MULTILINE)
    assert unreleased.startswith("[Unreleased]\n")
    versions = [RELEASED.match(part)[1] for part in released]
    assert versions == sorted({*versions}, key=Version, reverse=True)
    assert versions[:1] in ([], [version])
    for part in (unreleased, *released):
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]
        for entries in re.split(r"^### .*$", part, flags=re.MULTILINE)[1:]:
            assert "\n- " in entries


def test_the_changelog_has_entries_by_kind_below_each_version():
    check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), PROJECT["version"])


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_one_command_writes_a_version_into_all_files_and_dates_it(tmp_path):
    pytest.importorskip("bumpversion")
    names = ("pyproject.toml", "ata_gym/__init__.py", "CITATION.cff", "CHANGELOG.md")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def git(*words: str) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for version in (PROJECT["version"], "77.0.1", "77.1.0"):  # the first was never released
        git("add", ".")
        git("commit", "--message", version)
        command = [sys.executable, "-m", "bumpversion", "replace", "--no-allow-dirty"]
        subprocess.run(
            [*command, "--new-version", version], cwd=tmp_path, check=True, capture_output=True
        )
        told = {name: (tmp_path / name).read_text("utf-8") for name in names}
        assert tomllib.loads(told["pyproject.toml"])["project"]["version"] == version
        assert f'\n__version__ = "{version}"\n' in told["ata_gym/__init__.py"]
        citation = yaml.safe_load(told["CITATION.cff"])
        assert citation["version"] == version
        check_changelog(told["CHANGELOG.md"], version)
        assert f"## [{version}] - {citation['date-released']}\n" in told["CHANGELOG.md"]
        assert citation.keys() == {
            *yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8")),
            "date-released",
        }


def test_the_base_import_loads_nothing_heavy_and_leaves_the_handlers_of_signals_alone():
    code = (
        "import signal, sys; before = signal.getsignal(2), signal.getsignal(15); import ata_gym,"
        " ata_policies"
    )
    code += "; assert before == (signal.getsignal(2), signal.getsignal(15)); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "ata-gym"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"ata_gym", "ata_policies", "gymnasium", "numpy"} <= loaded
    assert not loaded & HEAVY


def test_the_base_has_only_its_five_dependencies_and_all_holds_every_extra_but_dev():
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == {
        "gymnasium",
        "numpy",
        "scipy",
        "numba",
        "safetensors",
    }
    (everything,) = map(Requirement, EXTRAS["all"])
    assert (everything.name, everything.extras) == (PROJECT["name"], EXTRAS.keys() - {"all", "dev"})


@pytest.mark.parametrize("group", ["base", *sorted(EXTRAS.keys() - {"all"})])
def test_constraints_are_sorted_exact_public_versions_that_pin_every_dependency_within_its_range(
    group,
):
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines), key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9A-Za-z.]+", line) for line in lines)
    pins = {
        canonicalize_name(name): Version(version)
        for name, version in (line.split("==") for line in lines)
    }
    assert not any(version.is_prerelease for version in pins.values())
    for requirement in map(
        Requirement,
        PROJECT["dependencies"] if group == "base" else EXTRAS[group],
    ):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def built(folder: Path, source: Path = ROOT, address: str = "") -> Path:
    """The folder, with the packages that hatchling builds of a checkout or of an unpacked source
    distribution.
    """
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    told = {"cwd": source, "env": os.environ | {"ATA_GYM_URL": address}}
    done = subprocess.run(command, **told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def metadata(folder: Path) -> Message:
    (wheel,) = folder.glob("*.whl")
    packed = zipfile.ZipFile(wheel)
    return message_from_bytes(packed.read(f"ata_gym-{ata_gym.__version__}.dist-info/METADATA"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def addressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("addressed"), address="https://example.org/one/ata-gym/")


def test_the_wheel_holds_both_packages_and_nothing_else(plain):
    (wheel,) = plain.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(parent).as_posix()
        for parent, package in ((ROOT, "ata_gym"), (ROOT / "policies", "ata_policies"))
        for path in (parent / package).rglob("*")
        if path.suffix in {".py", ".typed", ".csv", ".html", ".css", ".js"}
    }
    assert (
        {"ata_gym/py.typed", "ata_policies/py.typed"}
        <= sources
        <= packed - {"ata_gym/CITATION.cff"}
        < packed
    )
    assert not any("__pycache__" in name for name in packed)
    assert {name.partition("/")[0] for name in packed} == {"ata_gym", "ata_policies"}


def test_an_index_takes_the_packages_which_name_every_python_and_address_only_what_they_were_told(
    plain,
    addressed,
):
    pytest.importorskip("twine")
    files = [str(file) for folder in (plain, addressed) for file in folder.iterdir()]
    assert len(files) == 4
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        check=True,
        capture_output=True,
    )
    without = metadata(plain)
    told = metadata(addressed)
    assert without.get_all("Project-URL") is None
    assert "notebooks/pictures" not in str(without.get_payload())
    urls = {line.partition(", ")[2] for line in told.get_all("Project-URL", [])}
    assert {url.partition("/ata-gym")[0] for url in urls} == {"https://example.org/one"}
    paths = {url.partition(f"/v{ata_gym.__version__}/")[2] for url in urls} - {""}
    assert paths == {"docs", "CHANGELOG.md"}
    assert all((ROOT / path).exists() for path in paths)
    assert not [*targets(str(without.get_payload())), *targets(str(told.get_payload()))]
    for target in targets((ROOT / "README.md").read_text(encoding="utf-8")):
        place = f"{'raw' if '/pictures/' in target else 'blob'}/v{ata_gym.__version__}/{target}"
        assert f"](https://example.org/one/ata-gym/{place})" in str(told.get_payload())


def test_a_source_distribution_makes_the_same_packages_without_being_told_the_address(
    addressed,
    tmp_path,
):
    (source,) = addressed.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for path in folder.rglob("*"):
        os.utime(path, (2e9, 2e9))
        path.chmod(path.stat().st_mode & 0o700)
    assert all(
        (folder / name).exists()
        for name in ("Makefile", "tests", "docs", "constraints.txt", ".github")
    )
    again = built(tmp_path / "again", folder)
    assert metadata(again).as_string() == metadata(addressed).as_string()
    names = {file.name for file in addressed.iterdir()}
    assert {file.name for file in again.iterdir()} == names
    # also of files with other dates and modes, in another folder
    for name in names:
        assert (again / name).read_bytes() == (addressed / name).read_bytes(), name


def test_an_address_that_is_none_is_refused_and_the_examples_of_the_hook_are_right(tmp_path):
    with pytest.raises(
        AssertionError,
        match="ATA_GYM_URL is 'example', and should be like https://host/owner/ata-gym",
    ):
        built(tmp_path, address="example")
    import hatch_build

    assert doctest.testmod(hatch_build) == (0, 4)


def test_workflows_and_hooks_call_commands_of_make_on_each_system_and_python_of_the_metadata():
    known = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE),
    )
    flows = [
        yaml.safe_load(path.read_text("utf-8"))
        for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
    ]
    jobs = [job for flow in flows for job in flow["jobs"].values()]
    calls = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    calls += [hook["entry"] for repository in hooks for hook in repository["hooks"]]
    assert {tuple(call.split()[:2]) for call in calls} == {
        ("make", name) for name in ("test", "docs", "dist", "lint")
    }
    assert {call.split()[1] for call in calls} <= known
    (matrix,) = [job["strategy"]["matrix"] for job in jobs if "strategy" in job]
    assert [f"Programming Language :: Python :: {each}" for each in matrix["python"]] == [
        line for line in PROJECT["classifiers"] if "Python :: 3." in line
    ]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_make_alone_lists_every_command():
    done = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    for command in (
        "demo",
        "test",
        "lint",
        "docs",
        "benchmark",
        "fuzz",
        "ablation",
        "versions",
        "release",
        "dist",
        "clean",
    ):
        assert re.search(rf"^make {command} +\S", done.stdout, re.MULTILINE)
