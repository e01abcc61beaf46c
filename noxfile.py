"""The tests on several versions of Python, with the oldest and the newest versions of the packages that are needed.

Extras that hold torch are left out: their tests are run by ``make test``, on one version.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False
nox.options.stop_on_first_error = False


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize("versions", ["oldest", "newest"])
def tests(session: nox.Session, versions: str) -> None:
    """Install the oldest or the newest gymnasium, numpy, scipy and numba with wheels, and run every test."""
    pins = Path(session.create_tmp(), "pins.txt")
    resolution = "lowest-direct" if versions == "oldest" else "highest"
    session.run_install(
        "uv", "pip", "compile", "--quiet", "--no-header", "--only-binary", ":all:", "--python", str(session.python),
        "--resolution", resolution, "--output-file", str(pins), "pyproject.toml",
    )  # fmt: skip
    session.install("-c", str(pins), "-e", ".[bench,dev]")
    session.run("uv", "pip", "list")
    session.run(
        "pytest", "-n", "2", "-m", "not benchmark and not gpu", "--ignore=tests/training", "--ignore=ata_gym/training",
        *session.posargs,
    )  # fmt: skip
