"""The tests on several versions of Python, with the oldest and the newest packages.

Extras that hold torch are left out: their tests are run by ``make test``, on one version. The
session ``newest`` is a part of it that takes two minutes: what ``pip install`` takes today. The
sessions that are named after an RL library run its tests and its script in notebooks/agents, each
in an environment of its own, as their needs differ.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nox

# The interpreters of pyenv by themselves: its shims fail for each version that is not the one in
# use.
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
_FOLDERS = [str(folder) for folder in sorted(_PYENV.glob("3.*/bin"))]
os.environ["PATH"] = os.pathsep.join([*_FOLDERS, os.environ["PATH"]])

_NEWEST = next(
    (version for version in ("3.14", "3.13", "3.12") if shutil.which(f"python{version}")),
    None,
)
"""The newest Python here, other than the one of ``make test``; None if there is none."""

_COMMANDS = (
    "--version",
    "policies uta",
    "scenarios five-workers",
    "check uta",
    "bench --scenario five-workers --policies uta,ata,default --rounds 50 --seeds 2",
    "report results/five-workers",
)
"""What the session ``newest`` runs in a folder of its own."""

_WITH_TORCH = [
    f"{folder}/{room}" for folder in ("ata_gym", "tests") for room in ("training", "rl", "cluster")
]
"""The rooms that torch is needed in."""

_CITED = {"title", "creators", "description", "license", "version", "keywords"}
"""What Zenodo's record of a release says, all of which it reads from CITATION.cff."""

_PART = (
    "tests/simulation",
    "tests/theory/test_allocate.py",
    "tests/envs/test_vector_envs.py",
    "tests/pools/test_traces.py",
)
"""The tests that it runs: kernels, spaces, rows, and files read by polars."""

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = False
nox.options.stop_on_first_error = False


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize("versions", ["oldest", "newest"])
def tests(session: nox.Session, versions: str) -> None:
    """Install the oldest or newest gymnasium, numpy, scipy and numba, and run every test."""
    # after create_tmp, tests would write in the checkout
    pins = session.cache_dir / f"{versions}-{session.python}.txt"
    if versions == "oldest":
        resolution = "lowest-direct"
    else:
        resolution = "highest"
    session.run_install(
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--only-binary",
        ":all:",
        "--python",
        str(session.python),
        "--resolution",
        resolution,
        "--output-file",
        str(pins),
        "pyproject.toml",
    )
    session.install("-c", str(pins), "-e", ".[bench,dev]")
    session.run("uv", "pip", "list")
    session.run(
        "pytest",
        "-n",
        "2",
        "-m",
        "not benchmark and not gpu",
        *(f"--ignore={room}" for room in _WITH_TORCH),
        *session.posargs,
    )


@nox.session(python=_NEWEST)
def newest(session: nox.Session) -> None:
    """Install the newest of everything, and run six commands and a part of the tests."""
    if _NEWEST is None:
        session.skip("no Python 3.12 or newer is here")
    session.install(".")
    session.run("uv", "pip", "list")
    with TemporaryDirectory() as folder, session.chdir(folder):
        session.run("python", "-W", "error", "-c", "import ata_gym, ata_policies")
        session.install(f"{Path(__file__).parent}[bench]")
        for command in _COMMANDS:
            session.run("ata-gym", *command.split(), silent=True)
    session.install("pytest", "pytest-timeout", "hypothesis")
    # in one process: another one would compile the kernels again
    session.run(
        "pytest",
        *_PART,
        *session.posargs,
    )


@nox.session(python="3.11")
def torchrl(session: nox.Session) -> None:
    """Run the tests of TorchRL."""
    _library(session, "torchrl", "torchrl==0.14.1", "gymnasium==1.4.0")


@nox.session(python="3.11")
def tianshou(session: nox.Session) -> None:
    """Run the tests of Tianshou."""
    _library(session, "tianshou", "tianshou==2.0.1", "gymnasium==1.4.0")


@nox.session(python="3.11")
def rllib(session: nox.Session) -> None:
    """Run the tests of RLlib, which asks for one version of gymnasium."""
    _library(session, "rllib", "ray[rllib]==2.60.0", "gymnasium==1.2.2")


@nox.session(python="3.11")
def agilerl(session: nox.Session) -> None:
    """Run the script of AgileRL, which cannot be imported without peft."""
    _library(session, "agilerl", "agilerl==2.58.0", "peft==0.21.2", "gymnasium==1.4.0")


@nox.session(python="3.11")
def sbx(session: nox.Session) -> None:
    """Run the script of SBX, with JAX on the CPU."""
    _library(session, "sbx", "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "gymnasium==1.4.0")


@nox.session(python="3.11")
def d3rlpy(session: nox.Session) -> None:
    """Run the script of d3rlpy, with a later gymnasium than it asks for.

    The one that it asks for has no autoreset modes.
    """
    _library(session, "d3rlpy", "d3rlpy==2.8.1", overrides=["gymnasium==1.4.0"])


@nox.session(python="3.11")
def minari(session: nox.Session) -> None:
    """Run the tests and the script of Minari, whose extras do not name Pillow."""
    _library(session, "minari", "minari[create,hdf5]==0.5.4", "pillow==13.0.0", "gymnasium==1.4.0")


@nox.session(python="3.11")
def skrl(session: nox.Session) -> None:
    """Run the script of skrl."""
    _library(session, "skrl", "skrl==2.1.1", "gymnasium==1.4.0")


@nox.session(python="3.11")
def rl_games(session: nox.Session) -> None:
    """Run the script of rl_games."""
    _library(session, "rl_games", "rl-games==1.6.5", "gymnasium==1.4.0")


@nox.session(python="3.11")
def xuance(session: nox.Session) -> None:
    """Run the script of XuanCe, which asks for numpy 1, and runs with numpy 2."""
    _library(session, "xuance", "xuance==1.4.4", overrides=["numpy==2.4.6"])


@nox.session(python="3.11")
def flower(session: nox.Session) -> None:
    """Run the tests of Flower, which asks for older versions of protobuf, packaging and Ray."""
    session.install("flwr[simulation]==1.42.0", "scikit-learn", "matplotlib", "-e", ".")
    session.install("pytest", "pytest-timeout", "hypothesis")
    session.run("pytest", "tests/cluster/test_flower.py", *session.posargs)


def _library(
    session: nox.Session,
    name: str,
    *requirements: str,
    overrides: Sequence[str] = (),
) -> None:
    """Install a library, and torch and others as in constraints.txt, and run its tests.

    ``overrides`` are versions that it does not ask for.
    """
    # after create_tmp, Ray's files lie in the environment: no worker starts
    pins = session.cache_dir / f"{name}.txt"
    others = session.cache_dir / f"{name}-overrides.txt"
    pinned = (
        "torch",
        "numpy",
        "scipy",
        "numba",
        "llvmlite",
        "pytest",
        "pytest-timeout",
        "hypothesis",
    )
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    pins.write_text(
        "\n".join(line for line in lines if line.split("==")[0] in pinned),
        encoding="utf-8",
    )
    others.write_text("\n".join(overrides), encoding="utf-8")
    session.install(
        "-c",
        str(pins),
        "--override",
        str(others),
        *requirements,
        "torch",
        "pytest",
        "pytest-timeout",
        "hypothesis",
        "-e",
        ".",
    )
    session.run("uv", "pip", "list")
    tests = Path("tests/rl/libraries", f"test_{name}.py")
    session.run(
        "pytest",
        *([str(tests)] if tests.is_file() else []),
        "tests/rl/libraries/test_agents.py",
        "-m",
        "library",
        "-k",
        name,
        *session.posargs,
        env={"RAY_USAGE_STATS_ENABLED": "0"},
    )


@nox.session
def citation(session: nox.Session) -> None:
    """Check CITATION.cff, and that it tells Zenodo all that a record of a release needs."""
    # Its jsonschema is an old one, which cannot be installed beside that of the notebooks.
    session.install("cffconvert==2.0.0")
    session.run("cffconvert", "--validate")
    record = session.run("cffconvert", "--format", "zenodo", silent=True)
    missing = _CITED - json.loads(str(record)).keys()
    if missing:
        session.error(f"CITATION.cff tells Zenodo nothing of {', '.join(sorted(missing))}")
