import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

if not all(map(find_spec, ("sphinx", "torch", "polars"))):
    pytest.skip(
        "needs sphinx, and the extras whose types annotations name", allow_module_level=True
    )

import ata_gym
import ata_policies
from ata_gym.cli import GROUPS
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.registry import ids_by_name
from docs.site.sources import FOLDERS
from tests.waiting import until

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The anchors and links of a page, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.text = path.read_text("utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value)
            elif name == "href" and tag == "a":
                self.links.add(value)
            elif name in {"href", "src"}:
                self.loaded.add(value)


@cache
def page(path: Path) -> Page:
    return Page(path)


def pages_of(site: Path) -> list[Path]:
    return [path for path in site.rglob("*.html") if "_static" not in path.parts]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning of Sphinx would have been an exit code of 1."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_page_of_the_project_is_on_the_site(site):
    folders = [ROOT / name for name in FOLDERS]
    sources = [path for folder in folders for path in folder.rglob("*.*")]
    pages = [path for path in sources if path.suffix in {".md", ".ipynb"}]
    pages = [path for path in pages if ".ipynb_checkpoints" not in path.parts]
    pages += ROOT.glob("*.md")
    assert len(pages) > 30
    names = [path.relative_to(ROOT).with_suffix(".html") for path in pages]
    assert not [name for name in names if not (site / name).is_file()]


def test_everything_that_has_a_name_has_its_place(site):
    assert set(ata_policies.names()) <= page(site / "policies.html").anchors
    names = {*ata_gym.scenario_names(), *RECORDINGS}
    assert names <= page(site / "scenarios.html").anchors
    commands = [one.__name__.replace("_", "-") for panel in GROUPS.values() for one in panel]
    assert {f"ata-gym-{name}" for name in commands} <= page(site / "commands.html").anchors
    notebooks = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks <= page(site / "start.html").links


INNER = ("ata_gym.bench.logs.", "ata_gym.bench.studies.")
"""Packages that are parts of one that is shown."""


def promised_names() -> list[str]:
    """The classes and functions that docs/guide/stability.md promises: those in an ``__all__``."""
    names = []
    for path in sorted([*ROOT.glob("ata_gym/**/*.py"), *ROOT.glob("policies/**/*.py")]):
        lists = [
            node
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        parts = path.parent.relative_to(ROOT).parts
        module = ".".join(part for part in parts if part != "policies")
        if lists and not module.startswith(INNER):
            listed = ast.literal_eval(lists[0].value)
            names += [f"{module}.{name}" for name in listed if not name.strip("_").isupper()]
    return names


def test_every_promised_name_has_an_entry_and_a_field_only_its_own_words(site):
    names = promised_names()
    assert len(names) > 120
    anchors = {anchor for path in (site / "api").glob("*.html") for anchor in page(path).anchors}
    once = {"ata_gym.Scenario", "ata_gym.scenario", "ata_gym.scenario_names"}
    once |= {"ata_gym.training.MethodRun"}  # told in another package
    assert {*names} - anchors == once | {"ata_gym.__version__", "ata_gym.scenarios.PoolData"}
    assert not [path for path in pages_of(site) if "Alias for field" in page(path).text]
    pools = page(site / "api" / "ata_gym.pools.html")
    assert "The distributions of n workers as plain arrays" in pools.text
    assert "ata_gym.typing.html#ata_gym.typing.Floats" in pools.links


def target_of(path: Path, link: str) -> Path:
    """The file that a link of a page leads to."""
    inside = unquote(urlsplit(link).path)
    if not inside:
        return path
    return Path(os.path.normpath(path.parent / inside))


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    wrong = []
    for path in pages_of(site):
        for link in page(path).links:
            parts, to = urlsplit(link), target_of(path, link)
            if parts.scheme:
                continue
            anchor = unquote(parts.fragment)
            if not to.is_file() or (anchor and anchor not in page(to).anchors):
                wrong.append((path.name, link))
        for link in page(path).loaded:
            inside = not urlsplit(link).scheme and not urlsplit(link).netloc
            if not link.startswith("data:") and not (inside and target_of(path, link).exists()):
                wrong.append((path.name, link))
    assert not wrong
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\s]+", styles)


SECTIONS = (
    *("Description", "Action Space", "Observation Space", "Rewards", "Starting State"),
    *("Episode End", "Information", "Arguments", "Reset options", "Version History"),
)


@pytest.mark.parametrize("name", ids_by_name())
def test_the_page_of_an_env_has_a_picture_its_spaces_and_gymnasiums_sections(site, name):
    kind = f"Task{name.title()}"
    shown = page(site / "envs" / f"{kind}.html")
    headings = re.findall(r"<h2>([^<]+)<", shown.text)
    assert [title for title in headings if title in SECTIONS] == list(SECTIONS)
    assert f"../_images/{kind}.png" in shown.loaded
    words = re.sub(r"<[^>]+>", "", shown.text)
    assert "Action space" in words
    assert f"ata_gym/Task{name.title()}-v0" in words.partition("Example")[2]


def test_notebooks_have_their_output_formulas_need_no_network_and_the_search_knows_names(site):
    quickstart = page(site / "notebooks" / "quickstart.html")
    assert [one for one in quickstart.loaded if one.startswith("../_images/")]
    assert page(site / "docs" / "guide" / "theory.html").text.count("<math ") > 20
    index = (site / "searchindex.js").read_text("utf-8")
    assert "distribution-learner" in index
    assert len(index) < 2_000_000, "a phone loads it"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is a round?", "the round is over when the last result is in"),
        ("Which policy should I use?", "must know beforehand"),
        ("How do I describe my own workers?", "in place of a scenario, the workers"),
        ("How does my RL library use an env?", "with_sb3.py"),
        ("What would a policy save on my cluster?", "torchrun"),
    ],
)
def test_a_strangers_question_leads_from_the_first_page_to_its_answer(site, question, answer):
    start = page(site / "index.html")
    row = next(row for row in start.text.split("<tr") if question in row)
    links = re.findall(r'href="([^"]+)"', row)
    pages = [page(target_of(site / "index.html", link)) for link in links]
    texts = [" ".join(unescape(re.sub(r"<[^>]+>", "", one.text)).split()) for one in pages]
    assert any(answer in text for text in texts)


def requests(browser) -> set[str]:
    """What pages have asked for since the last call, but files and what a page holds."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    # the browser's own first page asks for more
    urls = [each["request"]["url"] for each in sent if each["documentURL"].startswith("file:")]
    return {url for url in urls if not url.startswith(("file:", "data:", "blob:"))}


def test_pages_fit_a_phone_and_a_screen_and_ask_the_network_for_nothing(site, look):
    for path in pages_of(site):
        browser = look(path, width=390, height=844)
        for width in (390, 1280) if path.parent == site else (390,):
            size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            widths = browser.execute_script(
                "return [document.documentElement.scrollWidth, innerWidth]"
            )
            assert widths == [width, width], path.relative_to(site)
    assert not requests(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_dark_where_the_reader_wants_it(site, look, scheme):
    browser = look(site / "index.html", scheme=scheme)
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) == (scheme == "dark")


def test_a_click_on_a_title_sorts_a_table(site, look):
    browser = look(site / "policies.html")
    first = "return document.querySelector('tbody td').textContent.trim()"
    names = sorted(ata_policies.names())
    for expected in (names[0], names[-1]):
        browser.execute_script("document.querySelector('thead th').click()")
        assert browser.execute_script(first) == expected


def test_the_search_shows_where_a_policy_is_described(site, browser):
    browser.get((site / "search.html").as_uri() + "?q=distribution-learner")
    results = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    links = until(lambda: browser.execute_script(results))
    assert any("policies.html" in link for link in links)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    from docs.__main__ import main

    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=f"^{tmp_path} holds files that are not of a site: name"):
        main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
