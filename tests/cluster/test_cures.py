"""Commands that errors and the doctor name install what was missing, as this version's metadata and
pip say, without a network.
"""

import ast
import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest

import ata_gym.cluster
from ata_gym.cluster import doctor

Requirement = pytest.importorskip("packaging.requirements", reason="the extra bench").Requirement
utils = pytest.importorskip("packaging.utils", reason="the extra bench")

SOURCES = Path(ata_gym.cluster.__file__).parent
OWN = metadata.metadata("ata-gym")
REQUIRED = list(map(Requirement, metadata.requires("ata-gym")))


def brought_by(requirement):
    """The packages that pip installs for a requirement, as far as ours say."""
    requirement = Requirement(requirement)
    if requirement.name != "ata-gym":
        return {requirement.name}
    assert requirement.extras <= set(OWN.get_all("Provides-Extra"))
    return {
        utils.canonicalize_name(each.name)
        for each in REQUIRED
        if each.marker is None
        or any(f'extra == "{extra}"' in str(each.marker) for extra in requirement.extras)
    }


def requirements_of(command):
    program, action, *arguments = shlex.split(command)
    assert (program, action) == ("pip", "install")
    return [argument for argument in arguments if argument != "--force-reinstall"]


def required_in_code():
    """The packages that code of ``ata_gym.cluster`` requires, with the extra that has each."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                (extra,) = [each.value.value for each in node.keywords if each.arg == "extra"]
                if isinstance(node.args[0], ast.Constant):
                    yield node.args[0].value.partition(".")[0], extra
                else:
                    yield from ((package, extra) for package in ata_gym.cluster._PACKAGES.values())


def test_the_extra_that_an_error_names_brings_the_package_that_was_missing():
    required = set(required_in_code())
    assert {package for package, _ in required} >= {"torch", "ray", "torchft", "transformers"}
    for package, extra in required:
        assert package in brought_by(f"ata-gym[{extra}]")


def commands_of_the_doctor(monkeypatch):
    """For each package that may be missing, the command that the doctor names for it."""
    monkeypatch.setattr(doctor, "_import_faults", dict.fromkeys)
    with monkeypatch.context() as nothing:
        nothing.setattr(metadata, "distributions", lambda: [])
        for finding in doctor.packages():
            names = finding.detail.partition("not installed: ")[2].split(", ")
            assert names != [""]
            yield from ((utils.canonicalize_name(name), finding.cure) for name in names)
        nothing.setattr(doctor, "_version", lambda _name: "")
        for finding in (*doctor.torch_findings(), *doctor.ray_findings()):
            yield finding.subject, finding.cure
        nothing.setitem(sys.modules, "packaging.requirements", None)
        (finding,) = doctor.packages()
        command, _, others = finding.cure.partition(", or another extra in place of bench")
        assert not others
        yield "packaging", command
        nothing.setattr(doctor, "helper", lambda: lambda _function: lambda _number: 0.0)
        (finding,) = doctor.compiled_kernels()
        yield "numba", finding.cure
        nothing.setattr(doctor, "_version", lambda _name: "1")
        nothing.setattr(doctor, "outcomes", lambda *_: [{"fault": "it was ended"}])
        (finding,) = doctor.torch_findings()
        yield "torch", finding.cure


def test_the_commands_of_the_doctor_bring_what_was_missing_and_pip_takes_them(
    tmp_path, monkeypatch
):
    pytest.importorskip("pip")
    commands = list(commands_of_the_doctor(monkeypatch))
    assert len(commands) > 20
    requirements = set()
    for package, command in commands:
        found = requirements_of(command)
        assert any(package in brought_by(each) for each in found), command
        requirements.update(found)
    # One command of all of them, where each package is there without code.
    extras = [f"Provides-Extra: {extra}" for extra in OWN.get_all("Provides-Extra")]
    make_wheel(tmp_path, "ata-gym", extras)
    for name in ("numba", "llvmlite", "torch"):
        make_wheel(tmp_path, name)
    line = [sys.executable, "-m", "pip", "install", "--force-reinstall", *sorted(requirements)]
    # Nothing is asked of a network.
    alone = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = subprocess.run(
        [*line, "--dry-run"], capture_output=True, text=True, check=False, env=alone
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr
    assert "Would install ata-gym-1 llvmlite-1 numba-1 torch-1" in done.stdout


def make_wheel(folder, name, lines=()):
    """A wheel without code."""
    stem = f"{name.replace('-', '_')}-1"
    head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *lines]
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join(head) + "\n")
        archive.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
