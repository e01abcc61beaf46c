"""Notes of results folders whose fields hold something else: one sentence, which names the file and the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from ata_gym.bench.page import two_folders
from ata_gym.cli.studies.report import write_page
from ata_gym.utils import manifest
from tests.mutated import refused_by_field


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are made, and not written, which takes most of the time."""
    monkeypatch.setattr("ata_gym.bench.page.render.render", lambda page: page.title)


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
    curve = {"loss_curve", *(f"loss_curve.{name}[{place}]" for name in ("round", "loss") for place in (0, 1))}
    optional = {"price", "least_cost", "policies[0].own", *curve}
    for read in (lambda: write_page(out), lambda: two_folders.side_by_side(out, out)):
        taken = refused_by_field(out / "about.json", read)
        assert {name for name in taken if ".facts." not in name} == optional
    for room in ("results", "allocations"):
        whole = json.loads((out / room / "ofta.json").read_text())
        missing = {*whole, *(f"code.{name}" for name in whole["code"])}
        assert refused_by_field(out / room / "ofta.json", lambda: write_page(out)) <= missing
