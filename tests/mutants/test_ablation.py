"""Each constant of the default is changed in turn in a copy, and its losses are paired by seed."""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.mutants import ablation
from tests.mutants.ablation import Variant

SOURCE = '''"""A file."""

import math

_CLIP = 5.0  # at most so many times
FIRST, SECOND = 0, 1
PASSES = 3
REACH = (math.inf, 8.0)
_NAMES = "n", "m"
_ROW = tuple(range(PASSES))
_SMALL = 2.0**-4
'''


@pytest.fixture
def copies(tmp_path, monkeypatch) -> list[str]:
    """A checkout with one file, whose copy needs as many rounds as its ``_CLIP`` says; and what was
    played so far.
    """
    place = tmp_path / "policies" / "ata_policies" / "planning" / "one.py"
    place.parent.mkdir(parents=True)
    place.write_text(SOURCE)
    played: list[str] = []

    def run_in(copy: Path, *_: object) -> tuple[int | None, str]:
        file = copy / place.relative_to(tmp_path)
        values = {name: value for _, name, value in ablation.constants(file.read_text())}
        played.append(f"{values}")
        clip = values.get("_CLIP", 7.0)
        return (0 if clip > 0 else None), json.dumps({"a": [clip, 5.0], "b": [5.0, 5.0]})

    monkeypatch.setattr(ablation, "ROOT", tmp_path)
    monkeypatch.setattr(ablation, "copy_of", lambda _: tmp_path)
    monkeypatch.setattr(ablation, "checksum", lambda *_: "one")
    monkeypatch.setattr(ablation, "run_in", run_in)
    (tmp_path / "README.md").write_text("read")
    (tmp_path / "out" / "one").mkdir(parents=True)
    return played


def run(folder: Path, only: str = "") -> pl.DataFrame:
    ablation.ablation("a,b", 2, 9, 1.0, only, 1, folder / "out")
    assert (folder / "policies/ata_policies/planning/one.py").read_text() == SOURCE
    return pl.read_csv(folder / "out" / "ablation.csv", schema_overrides={"becomes": pl.String})


@pytest.mark.usefixtures("copies")
def test_numbers_and_tuples_of_numbers_are_found_and_replaced():
    assert [(name, value) for _, name, value in ablation.constants(SOURCE)] == [
        *(("_CLIP", 5.0), ("PASSES", 3), ("REACH", (float("inf"), 8.0)), ("_SMALL", 0.0625)),
    ]
    made = list(ablation.variants(Variant("a", 1, 1), ""))
    assert [one.becomes for one in made if one.name == "_CLIP"] == ["2.5", "10.0", "0.0", "inf"]
    assert [one.becomes for one in made if one.name == "PASSES"] == ["1", "6", "0"]
    for one in made:
        values: dict[str, object] = {}
        exec(one.applied(SOURCE), values)
        assert (values[one.name], values["FIRST"]) == (eval(one.becomes, {"inf": float("inf")}), 0)


def test_losses_are_paired_by_seed_and_a_stopped_run_goes_on(copies, tmp_path):
    lost = run(tmp_path, "one.py:_CLIP")
    assert len(copies) == 5
    doubled = lost.filter(becomes="10.0").rows_by_key("world", named=True, unique=True)
    assert doubled["a"]["loss"] == pytest.approx(100 * (2**0.5 - 1))
    assert (doubled["a"]["worst"], doubled["b"]["worst"], doubled["all"]["worst"]) == (
        100.0,
        0.0,
        100.0,
    )
    assert doubled["all"]["loss"] == pytest.approx(100 * (2**0.25 - 1))
    assert lost.filter(becomes="0.0")["loss"].null_count() == 3
    assert "| fails |" in " ".join((tmp_path / "out" / "ablation.md").read_text().split())
    results = tmp_path / "out" / "one" / "results.jsonl"
    *lines, last = results.read_text().splitlines(keepends=True)
    results.write_text("".join([*lines, last[:9]]))  # a kill came in the middle of a line
    again = run(tmp_path, "one.py:_CLIP")
    assert len(copies) == 6
    assert again.equals(lost)
    run(tmp_path)
    assert len(copies) == 6 + 3 + 2 + 4  # of the other three constants
    with pytest.raises(SystemExit, match="no constant of the default matches --only nothing"):
        run(tmp_path, "nothing")
