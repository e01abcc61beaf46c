import doctest
import json
import re
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import pytest

if not all(map(find_spec, ("pdoc", "torch", "polars"))):
    pytest.skip("needs pdoc, and the extras whose types annotations name", allow_module_level=True)

import ata_gym
import ata_policies
from ata_gym.cli import GROUPS
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.registry import env_ids, ids_by_name

ROOT = Path(__file__).parents[1]
HEAVY = (
    "ata_gym.training",
    "ata_gym.rl",
    "ata_gym.cluster",
    "ata_gym.bench",
    "ata_gym.theory",
    "ata_gym.cli",
)
"""Left out here, as they take long; `make docs` builds them, and checks the same."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The built pages by their paths; a warning or a dead link would have been an exit code of
    1.
    """
    folder = tmp_path_factory.mktemp("docs") / "reference"
    without = [word for name in HEAVY for word in ("--without", name)]
    command = [sys.executable, "-m", "docs", str(folder), *without]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"left out: {name} (not asked for)\n" in done.stdout for name in HEAVY)
    found = [*folder.rglob("*.html"), folder / "search.js"]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in found}


def anchors(page: str) -> set[str]:
    return {unescape(anchor) for anchor in re.findall(r'id="([^"]+)"', page)}


def test_everything_that_has_a_name_has_its_place_and_every_public_module_its_page(
    pages,
):
    assert set(env_ids()) <= anchors(pages["index.html"])
    assert set(ata_policies.names()) <= anchors(pages["policies.html"])
    assert {*ata_gym.scenario_names(), *RECORDINGS} <= anchors(pages["scenarios.html"])
    assert {
        command.__name__.replace("_", "-") for panel in GROUPS.values() for command in panel
    } <= anchors(pages["commands.html"])
    for root, package in ((ROOT, "ata_gym"), (ROOT / "policies", "ata_policies")):
        for path in (root / package).rglob("*.py"):
            parts = [
                part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"
            ]
            module = ".".join(parts)
            shown = not parts[-1].startswith("_") and not f"{module}.".startswith(
                tuple(f"{one}." for one in HEAVY),
            )
            assert (f"{'/'.join(parts)}.html" in pages) == shown, module


SECTIONS = (
    *(
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
    ),
    *("Information", "Arguments", "Reset options", "Version History"),
)


@pytest.mark.parametrize("name", ids_by_name())
def test_the_page_of_an_env_has_gymnasiums_sections_and_its_example(pages, name):
    env = f"Task{name.title()}Env"
    if name == "dispatch":
        file = "dispatch"
    else:
        file = "allocation"
    shown = (
        pages[f"ata_gym/envs/{file}.html"]
        .partition(f'<section id="{env}">')[2]
        .partition("</section>")[0]
    )
    assert [
        title for title in re.findall(r"<h2[^>]*>([^<]+)</h2>", shown) if title in SECTIONS
    ] == list(SECTIONS)
    assert f"ata_gym/Task{name.title()}-v0" in re.sub(r"<[^>]+>", "", shown).partition("Example")[2]


def test_guides_notebooks_and_what_is_left_out_are_on_the_contents_and_the_index_is_small(pages):
    from docs.site import guides, search

    shown = [*(source for group in guides.GROUPS.values() for source in group), *guides.notebooks()]
    assert len(guides.notebooks()) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    assert {*shown, *HEAVY} <= anchors(pages["index.html"])
    assert all(f'href="{guides.page_of(source)}"' in pages["index.html"] for source in shown)
    assert pages[guides.page_of("docs/guide/theory.md")].count("<math ") > 20
    assert "data:image/png;base64" in pages["notebook-quickstart.html"]
    for name in ids_by_name():
        assert f'<img src="picture-env-task{name}.png"' in pages[f"env-task{name}.html"]
    index = json.loads(re.search(r"(\[{.*}\]);?$", pages["search.js"], re.MULTILINE)[1])
    assert {"Workers that change", "ata_policies.registry.make"} <= {
        one["fullname"] for one in index
    }
    assert len(pages["search.js"]) < search.MOST


def test_a_fault_is_said_and_a_folder_of_something_else_is_left_alone(tmp_path):
    from docs.site import guides, links, reference

    for module in (guides, links):
        failed, tried = doctest.testmod(module)
        assert (failed, tried > 0) == (0, True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError,
        match=f"^{tmp_path} holds files that are not of an API reference: name another f",
    ):
        reference.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
