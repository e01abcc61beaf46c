import json
import re
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from tests.waiting import PATIENCE

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
INDEX = (Path(__file__).parents[1] / "notebooks" / "README.md").read_text(encoding="utf-8")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(request.param, 4))
    return nbformat.read(request.param, 4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def packages(notebook):
    lines = [line for cell in code(notebook) for line in cell.source.splitlines()]
    return {re.split(r"[ .]", line)[1] for line in lines if line.startswith(("import ", "from "))}


def printed(notebook):
    """What each cell writes to stdout; libraries write warnings to stderr, which differ from
    machine to machine.
    """
    streams = [
        [out for out in cell.outputs if out.output_type == "stream"] for cell in code(notebook)
    ]
    return ["".join(out.text for out in outputs if out.name == "stdout") for outputs in streams]


NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
PERCENT = re.compile(r"(\d+)%")
TRAINED = "trained-agent"
"""The tag of a cell that prints what a trained network does: an agent trained in the notebook, or
``learned``.
"""


def alike(text, before):
    """Whether two texts are the same but for numbers, of which percentages are at most 5 apart.

    Sums in single precision depend on the processor, and what is learned or decided from them goes
    its own way.
    """
    words, expected = (" ".join(NUMBER.sub(" ", each).split()) for each in (text, before))
    percent, known = ([int(number) for number in PERCENT.findall(each)] for each in (text, before))
    return words == expected and percent == pytest.approx(known, abs=5)


QUICKER = {
    "agents": ("51_200", "25_600"),
    "cluster": (
        "4 compare.py --emulate 0.005,0.005,0.01,0.02 --budget 32",
        "2 compare.py --emulate 0.005,0.02 --budget 16",
    ),
}
"""What a test replaces in a notebook: it takes half of the processor time, and prints the same."""


def pictures(notebook):
    return [
        sum("image/png" in out.get("data", {}) for out in cell.outputs) for cell in code(notebook)
    ]


def test_each_opens_with_a_question_and_ends_with_where_to_go(notebook):
    first = notebook.cells[0].source
    last = notebook.cells[-1].source
    title, question, _ = first.split("\n\n", 2)
    assert title.startswith("# ")
    assert re.fullmatch(r"\*\*[A-Z].+\?\*\*", question)
    assert "## Where to go next\n" in last
    assert f"| {question.strip('*')} |" in INDEX


def test_the_index_has_each_with_its_picture():
    for path in NOTEBOOKS:
        row = rf'^\| \[{path.name}\]\({path.name}\) .*<img src="pictures/notebook-{path.stem}.png"'
        assert re.search(row, INDEX, re.M)
    assert INDEX.count("<img ") == len(NOTEBOOKS) > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_thumbnail_is_what_the_command_makes_of_the_committed_picture(path):
    images = pytest.importorskip("PIL.Image")
    made = run_path(str(path.with_name("thumbnails.py")))["thumbnail"](path).convert("RGB")
    kept = images.open(path.parent / "pictures" / f"notebook-{path.stem}.png").convert("RGB")
    assert made.size == kept.size
    # Pillow may round otherwise in another version
    assert np.abs(np.subtract(made, kept, dtype=float)).mean() < 0.5


def test_a_notebook_with_several_pictures_says_which_one_stands_for_it(tmp_path):
    pytest.importorskip("PIL.Image")
    picture = run_path(str(NOTEBOOKS[0].with_name("thumbnails.py")))["picture"]
    notebook = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    (shown,) = (
        cell
        for cell in notebook["cells"]
        if any("image/png" in out.get("data", {}) for out in cell.get("outputs", ()))
    )
    twice = tmp_path / "twice.ipynb"
    twice.write_text(json.dumps({"cells": [shown, shown]}), encoding="utf-8")
    with pytest.raises(
        ValueError,
        match=r"^twice.ipynb has 2 pictures; give the tag 'thumbnail' to the cell of one$",
    ):
        picture(twice)
    tagged = {**shown, "metadata": {"tags": ["thumbnail"]}}
    twice.write_text(json.dumps({"cells": [shown, tagged]}), encoding="utf-8")
    assert picture(twice).tobytes() == picture(NOTEBOOKS[0]).tobytes()


def test_each_is_committed_with_the_output_of_one_run_and_tells_nothing_of_the_machine(notebook):
    assert [cell.execution_count for cell in code(notebook)] == list(
        range(1, len(code(notebook)) + 1),
    )
    assert sum(pictures(notebook)) >= 1
    assert any(printed(notebook))
    assert all(out.output_type != "error" for cell in code(notebook) for out in cell.outputs)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    # names places
    assert not [
        out for cell in code(notebook) for out in cell.outputs if out.get("name") == "stderr"
    ]
    words = "\n".join([cell.source for cell in notebook.cells] + printed(notebook))
    assert not re.search(r"(?<![\w.])/(home|Users|root|tmp|work|usr|opt|var)\b|[A-Z]:\\", words)


def test_each_runs_and_prints_what_is_committed(notebook, request):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    missing = sorted(package for package in packages(notebook) if find_spec(package) is None)
    if missing:
        pytest.skip(f"it needs {', '.join(missing)}")
    before = printed(notebook), pictures(notebook)
    written, quicker = QUICKER.get(request.node.callspec.id, ("", ""))
    assert any(written in cell.source for cell in code(notebook))
    for cell in code(notebook):
        if written:
            cell.source = cell.source.replace(written, quicker)
    nbclient.NotebookClient(notebook, timeout=int(PATIENCE), kernel_name="python3").execute()
    assert pictures(notebook) == before[1]
    for cell, text, expected in zip(code(notebook), printed(notebook), before[0], strict=True):
        assert text == expected or (
            TRAINED in cell.metadata.get("tags", ()) and alike(text, expected)
        )
