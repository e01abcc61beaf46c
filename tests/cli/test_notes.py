"""Files of results folders that are something else: one sentence, which names the file, and the
field of a note.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ata_gym.bench.store.folder import verify
from ata_gym.bench.studies import two_folders
from ata_gym.cli.studies.report import write_page
from ata_gym.utils.files import manifest
from tests.mutated import refused_by_field


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are made, and not written, which takes most of the time."""
    monkeypatch.setattr("ata_gym.bench.report.page.render.render", lambda page: page.title)


def without_manifest(out: Path) -> Path:
    """A results folder in which nothing says that a file was changed."""
    (out / manifest.NAME).unlink()
    return out


@pytest.mark.usefixtures("unwritten")
def test_a_note_of_bench_is_refused_by_file_and_field(benched: Any) -> None:
    out = without_manifest(benched.out)
    about = json.loads((out / "about.json").read_text())
    about["policies"] = about["policies"][:1]
    about["loss_curve"] = {"round": [1, 20], "loss": [5.0, 3.0]}
    (out / "about.json").write_text(json.dumps(about))
    curve = {
        "loss_curve",
        *(f"loss_curve.{name}[{place}]" for name in ("round", "loss") for place in (0, 1)),
    }
    optional = {"price", "lower_bound", "least_cost", *curve}
    for read in (lambda: write_page(out), lambda: two_folders.compare_folders(out, out)):
        taken = refused_by_field(out / "about.json", read)
        assert {name for name in taken if ".facts." not in name} == optional
    for room in ("results", "allocations"):
        whole = json.loads((out / room / "ofta.json").read_text())
        missing = {*whole, *(f"code.{name}" for name in whole["code"])}
        assert refused_by_field(out / room / "ofta.json", lambda: write_page(out)) <= missing


@pytest.mark.timeout(120)  # a command that reads a pipe waits without an end
@pytest.mark.usefixtures("unwritten")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        "about.json",
        "config.json",
        manifest.NAME,
        "results/ofta.json",
        "results/ofta.parquet",
        "allocations/ofta.json",
        "allocations/ofta.parquet",
    ],
)
def test_what_is_no_file_is_refused_and_never_waited_for(
    benched: Any,
    refused: Any,
    name: str,
    kind: str,
) -> None:
    place = benched.out / name
    shutil.copytree(benched.out, "whole")
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    for door in (
        lambda: write_page(benched.out),
        lambda: two_folders.compare_folders(benched.out, Path("whole")),
    ):
        with pytest.raises((ValueError, OSError), match=f"{name}.* is a {kind} "):
            door()
    assert [one.file for one in verify(benched.out) if one.fault] == [place]
    if name in ("config.json", manifest.NAME, "results/ofta.json"):
        assert f"out/{name} is a {kind} in the place of a file" in refused(benched.line)
