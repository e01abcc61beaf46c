"""All studies go through one pipeline: what holds for one of them holds for each."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from ata_gym import bench
from ata_gym.bench.logs import Log
from ata_gym.bench.report import style
from ata_gym.bench.report.page.render import looks, render
from ata_gym.bench.report.report import leave_for_paper
from ata_gym.bench.runner.results import Results
from ata_gym.bench.studies.reading import STUDIES
from ata_gym.changes import Switch
from ata_gym.scenarios import scenario
from tests.bench.latex import assert_latex
from tests.bench.test_benchmark import Failing, Fastest

SIZE: dict[str, Any] = {"rounds": 12, "seeds": 2, "jobs": 1}

TIMES = np.random.default_rng(0).uniform(1.0, 2.0, (60, 4))
REVERSED = replace(scenario("five-workers"), changes=(Switch(at=(8,)),), horizon=12)
LOG = Log("a job", ["a", "b", "c", "d"], TIMES, np.ones_like(TIMES))

BY_POLICIES: dict[str, Callable[..., Results]] = {
    "bench": partial(bench.run, scenario="five-workers", **SIZE),
    "scenarios": partial(bench.run, scenario=["five-workers", "icml2025-regret"], **SIZE),
    "sweep": partial(
        bench.sweep,
        scenario="five-workers",
        parameter="budget",
        values=[3, 5],
        **SIZE,
    ),
    "track": partial(
        bench.track,
        scenario=REVERSED,
        before=2,
        after=3,
        seeds=2,
        jobs=1,
    ),
    "leaderboard": partial(
        bench.leaderboard,
        "steady",
        quick=True,
        scenarios="regret",
        prices=0.0,
        seeds=2,
        jobs=1,
    ),
    "what-if": partial(bench.what_if, LOG, tasks=2),  # oracles cannot play it
    "train": partial(bench.train, scenario="five-workers", problem="quadratic", rounds=12),
    "train-each": partial(bench.train, scenario="five-workers", problem="heterogeneous", rounds=12),
}
"""A small study of each name, for policies that are given, and kept where it is said."""

OTHERS: dict[str, Callable[..., Results]] = {
    "learn": partial(
        bench.learn,
        scenario="five-workers",
        rounds=4,
        hyperparameters={"n_steps": 8, "batch_size": 16, "n_epochs": 2},
        steps=64,
        rows=4,
        evaluations=1,
        validation=2,
        test=2,
    ),
    "regret": partial(bench.reproduce, "icml2025-regret", **SIZE),
    "cifar100": partial(bench.reproduce, "icml2025-cifar100", **SIZE),
    "quadratic": partial(bench.reproduce, "icml2025-quadratic", sizes=[17], **SIZE),
}
"""Small studies whose policies are not asked for."""

NEEDS_IMAGES = {"cifar100-network"}
"""Studies that train on images of the user's, which their own tests have."""

POLICIES = ["uta", "ofta"]

FIGURES_OF_SPEECH = {
    *("beside", "besides", "game", "games", "player", "players", "clock", "clocks"),
    *("dear", "cheap", "rival", "rivals", "fight", "behind", "thrown", "throw", "luck"),
}
"""Words for which a report has the term of the field."""


def call(name: str, **options: Any) -> Results:
    """Play the small study of a name."""
    if name in ("train", "train-each", "quadratic"):
        pytest.importorskip("torch", reason="torch is not installed")
    if name == "learn":
        pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    if name in BY_POLICIES:
        policies = ["uta", "restarting-beta"] if name == "what-if" else POLICIES
        return BY_POLICIES[name](**{"policies": policies, **options})
    return OTHERS[name](**options)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Results, Path]]:
    """The results of a study, played once, and their folder."""
    kept: dict[str, tuple[Results, Path]] = {}

    def play(name: str) -> tuple[Results, Path]:
        if name not in kept:
            out = tmp_path_factory.mktemp(name) / "out"
            kept[name] = call(name, out=out), out
        return kept[name]

    return play


@pytest.fixture(scope="module")
def drawn(played: Callable[[str], tuple[Results, Path]]) -> Callable[[str], dict[str, Figure]]:
    """The pictures of a study, and its profile, drawn once."""

    @cache
    def draw(name: str) -> dict[str, Figure]:
        results, _ = played(name)
        return {
            picture: results.plot(picture) for picture in (*results.content.pictures, "profile")
        }

    return draw


def files(folder: Path) -> dict[str, bytes]:
    """The content of all files but those that say who holds a folder, and how long it took."""
    apart = (".ata-gym", "timings.json", "ata-gym.sha256")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(apart)
    }


def test_each_study_is_tried_here():
    assert BY_POLICIES.keys() | OTHERS.keys() | NEEDS_IMAGES == STUDIES.keys()


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_folder_is_read_as_what_was_played_and_can_be_pickled_compared_and_drawn(played, name):
    results, out = played(name)
    again = pickle.loads(pickle.dumps(bench.read(out)))
    assert again.table().equals(results.table())
    assert again.records.equals(results.records)
    assert again.content.findings == results.content.findings
    page = render(results.content.page())
    assert render(again.content.page()) == page
    assert (out / "report.html").read_text("utf-8") == page
    # As PNG and SVG; a leaderboard without the scenario of its picture has none.
    assert len(results.pictures) == 2 * len(results.content.pictures)
    # Each is drawn for a paper below.
    for picture in [*results.content.pictures][:1]:
        assert again.plot(picture)._repr_png_().startswith(b"\x89PNG")
    samples = next(iter(results.content.samples.values()))
    first, second = [*next(iter(samples.values()))][:2]
    # Not the ratios, since the interval of one seed is NaN.
    assert again.compare(first, second).sentence == results.compare(first, second).sentence
    assert f"{first} compared with {second}" in results.compare(first, second).sentence
    assert len(again.profile())


HIDDEN = """
return [...document.querySelectorAll(".scroll:not([hidden])")].flatMap((table) => {
  const heads = [...table.querySelectorAll("thead th")].filter((head) => head.offsetWidth);
  const numbers = heads.filter((head) => head.classList.contains("number"));
  const ratio = numbers.find((head) => head.textContent.includes("/")) || numbers[0];
  const half = heads.find((head) => head.textContent.startsWith("±"));
  const edge = table.getBoundingClientRect().left + table.clientLeft + table.clientWidth + 0.5;
  const needed = [heads[0], ratio, half].filter(Boolean);
  return needed.filter((head) => head.getBoundingClientRect().right > edge);
}).map((head) => `${head.closest("section").id}: ${head.textContent}`);
"""


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_telephone_shows_policy_ratio_and_interval_without_a_scroll(played, look, name):
    _, out = played(name)
    browser = look(out / "report.html", 390, 3000)
    assert browser.execute_script(HIDDEN) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_policy_has_the_colour_of_the_page_in_all_pictures(played, drawn, name):
    results, _ = played(name)
    on_page = {look["name"]: look["light"] for look in looks(results.content.page())}
    for picture in drawn(name).values():
        lines = picture.findobj(Line2D)
        colours = {(line.get_label(), line.get_color()) for line in lines}
        assert {pair for pair in colours if pair[0] in on_page} <= on_page.items()


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_paper_gets_figures_in_the_width_of_columns_with_their_fonts(played, tmp_path, name):
    pypdf = pytest.importorskip("pypdf", reason="pypdf is not installed")
    results, _ = played(name)
    files = leave_for_paper(results.content, tmp_path, tables=False)
    assert [file.stem for file in files] == [*results.content.pictures]
    for file in files:
        (sheet,) = pypdf.PdfReader(file).pages
        assert round(sheet.mediabox.width / 72, 2) in (style.COLUMN, style.TWO_COLUMNS)
        fonts = [font.get_object() for font in sheet["/Resources"]["/Font"].values()]
        assert fonts
        for font in fonts:
            (inner,) = font.get("/DescendantFonts", [font])
            assert "STIX" in inner["/BaseFont"]
            assert "/FontFile2" in inner.get_object()["/FontDescriptor"]  # TrueType, in the file
        texts = sheet.get_contents().get_data()
        sizes = {float(size) for size in re.findall(rb"/\S+ ([\d.]+) Tf", texts)}
        assert min(sizes) >= 4.8  # an exponent
        assert max(sizes) <= 8.5


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_paper_gets_the_tables_in_latex(played, name):
    results, _ = played(name)
    assert_latex(results.latex(), results.content.tables)


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_what_a_report_says_needs_no_glossary(played, drawn, name):
    results, out = played(name)
    html = (out / "report.html").read_text("utf-8")
    texts = [
        re.sub("<(style|script).*?</\\1>|<[^>]*>", " ", html, flags=re.DOTALL),
        *(path.read_text("utf-8") for path in out.glob("*.md")),
        results.content.findings,
        *results.remarks,
        *(text.get_text() for picture in drawn(name).values() for text in picture.findobj(Text)),
    ]
    words = {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}
    assert not words & FIGURES_OF_SPEECH


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_the_same_call_leaves_the_same_bytes(played, name):
    _, out = played(name)
    before = files(out)
    call(name, out=out)
    assert files(out) == before


@pytest.mark.parametrize("name", [*BY_POLICIES, "regret"])
def test_without_a_folder_nothing_is_left(played, name, tmp_path, monkeypatch):
    results, _ = played(name)
    monkeypatch.chdir(tmp_path)
    alone = call(name)
    assert alone.table().equals(results.table())
    assert alone.files == alone.pictures == []
    assert not [*tmp_path.iterdir()]
    assert alone.report("page.html").read_text("utf-8") == render(alone.content.page())


@pytest.mark.parametrize("name", [*BY_POLICIES, *OTHERS])
def test_a_folder_of_another_study_is_refused_as_it_is(played, name):
    _, out = played(name)
    before = files(out)
    other = "sweep" if name == "bench" else "bench"
    with pytest.raises(ValueError, match=f"holds the results of {name}"):
        call(other, out=out)
    assert files(out) == before


@pytest.mark.parametrize("name", [*BY_POLICIES])
def test_classes_play_too_and_one_that_fails_leaves_the_others_alone(name, tmp_path):
    with pytest.warns(bench.PolicyFailedWarning, match="Failing.* failed: .*no idea"):
        results = call(name, policies={"mine": Fastest, "Failing": Failing}, out=tmp_path)
    assert {label.partition(" ")[0] for label in results.failures} == {"Failing"}
    for failure in results.failures.values():
        assert failure.traceback is not None
        assert "no idea" in failure.traceback.read_text("utf-8")
    samples = next(iter(results.content.samples.values()))
    policies = {*next(iter(samples.values()))}
    assert "mine" in policies
    assert "Failing" not in policies
    assert "no idea" in results._repr_html_()
    assert [*tmp_path.rglob("sources/mine.py")]
