import re
from itertools import combinations

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.text import Text
from scipy import stats

from ata_gym import bench
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.pictures import legend
from ata_gym.bench.report.report import leave, leave_for_paper
from ata_gym.bench.report.table import LEFT, RIGHT, Table, latex, markdown
from ata_gym.bench.studies.benchmark import Benchmark
from ata_gym.bench.studies.leaderboard import front as fronts
from ata_gym.bench.studies.paper import regret as regret_figure
from ata_gym.pools import read_trace
from ata_gym.scenarios import Scenario
from ata_gym.theory import RegretLowerBound
from tests.bench.latex import assert_latex


@pytest.fixture(scope="module", autouse=True)
def sketches():
    """Here pictures are drawn."""


def test_pictures_and_tables_are_the_same_bytes_each_time(tmp_path):
    policies = ["gta", "ofta", "ata-icml"]
    bench.run(policies, "icml2025-regret", rounds=40, seeds=3, jobs=1, out=tmp_path)
    bytes_of = []
    for width in ({}, {"lines.linewidth": 9.0}):  # the user's own style changes nothing
        with mpl.rc_context(width):
            left = leave(Benchmark.report(tmp_path), tmp_path)
        bytes_of.append({path.name: path.read_bytes() for path in (*left.pictures, *left.tables)})
    assert bytes_of[0] == bytes_of[1]
    assert [path.parent for path in left.pictures] == [tmp_path / "plots"] * 6
    expected = [
        f"{stem}.{kind}" for stem in ("runtime", "worker_time", "regret") for kind in ("png", "svg")
    ]
    assert [*bytes_of[0]][:6] == expected
    assert bytes_of[0]["runtime.png"].startswith(b"\x89PNG")
    assert b"</svg>" in bytes_of[0]["runtime.svg"]


@pytest.mark.parametrize("rounds", [1, 3])
def test_recorded_times_of_zero_are_drawn_and_compared(tmp_path, rounds):
    (tmp_path / "trace.csv").write_text("w,k,t\na,1,0\nb,1,0\na,2,0\nb,2,0\na,3,1\nb,3,2\n")
    pool = read_trace(tmp_path / "trace.csv", worker="w", duration="t", round="k")
    size = {"rounds": rounds, "seeds": 2, "jobs": 1}
    results = bench.run(["gta", "ofta"], Scenario(pool, 2), **size)
    assert [*results.content.pictures] == ["runtime", "worker_time", "regret"]
    assert [*bench.run("gta", Scenario(pool, 2), **size).content.pictures] == [
        "runtime",
        "worker_time",
    ]
    for name in results.content.pictures:
        results.plot(name).draw_without_rendering()
    ratio = results.table().filter(policy="gta", quantity="runtime/ofta")["mean"].item()
    assert ratio == (None if rounds < 3 else 1.0)


def test_a_picture_draws_the_chart_of_the_page():
    """The same means and bands, in the order of the page's lines."""
    results = bench.run(["uta", "ofta"], "five-workers", rounds=30, seeds=3, jobs=1)
    (chart,) = (section for section in results.content.page().sections if section.id == "runtime")
    sums, means = results.plot("runtime").axes
    for line, mean_line, series in zip(
        sums.get_lines(),
        means.get_lines(),
        chart.views[0].data["series"],
        strict=True,
    ):
        rounds = chart.views[0].data["x"]
        assert line.get_xdata().tolist() == mean_line.get_xdata().tolist() == rounds.tolist()
        assert line.get_ydata() == pytest.approx(series["mean"])
        assert mean_line.get_ydata() == pytest.approx(series["mean"] / rounds)
    assert len(sums.collections) == len(means.collections) == 2
    assert [line.get_label() for line in sums.get_lines()] == ["uta", "ofta"]


@pytest.mark.parametrize(("crowd", "spread"), [(1, 1.0), (20, 0.0), (45, 0.2)])
def test_labels_lie_on_no_other_and_inside_the_axes(crowd, spread):
    rng = np.random.default_rng(crowd)
    with style.figure(8.0, 6.2) as picture:
        axes = picture.subplots()
        labelled = []
        for k in range(crowd):
            x, y = np.exp(spread * rng.normal(size=2))
            axes.plot(x, y, "o")
            labelled.append((f"some-policy-{k}", "black", x, y))
        fronts._describe(axes, "a title")
        picture.draw_without_rendering()
        picture.set_layout_engine("none")
        notes = fronts.place_labels(picture, axes, labelled)
        renderer = picture.canvas.get_renderer()
        for note in notes:
            note.update_positions(renderer)
        texts = [Text.get_window_extent(note, renderer) for note in notes]
        room = axes.get_window_extent(renderer)
    assert len(texts) == crowd
    assert not any(one.overlaps(other) for one, other in combinations(texts, 2))
    assert all(
        room.x0 <= box.x0 <= box.x1 <= room.x1 and room.y0 <= box.y0 <= box.y1 <= room.y1
        for box in texts
    )


def test_a_picture_for_a_paper_is_the_same_bytes_each_time_and_leaves_others_as_they_are(tmp_path):
    results = bench.run(["uta", "ofta"], "five-workers", rounds=9, seeds=2, jobs=1)
    before = results.plot()._repr_png_()
    made = [
        leave_for_paper(results.content, tmp_path / name, tables=False) for name in ("one", "two")
    ]
    assert all(one.read_bytes() == two.read_bytes() for one, two in zip(*made, strict=True))
    picture = results.plot("profile", paper=True)
    assert picture.get_figwidth() == style.COLUMN
    picture.savefig(tmp_path / "profile.pdf")
    assert b"STIX" in (tmp_path / "profile.pdf").read_bytes()
    assert results.plot()._repr_png_() == before


def test_cells_of_any_text_stand_in_latex_as_they_are():
    hostile = r"a_b & 50 % of $x$ #1 {c} ~ \alpha <d>"
    table = Table(
        "50 % of all\nin two lines",
        {"what": LEFT, "cost\n(1e-3)": RIGHT},
        [(hostile, "1.50 ± 0.02"), (), ("gta", "-")],
    )
    assert_latex(latex([table, table]), [table, table])
    assert r"x\^{}2" in latex([Table("", {"x^2": LEFT}, [])])
    assert "cost ($10^{-3}$)" in latex([table])
    assert latex([table]).startswith("% 50 % of all\n% in two lines\n")


ROUNDS = Experiment.on_scenario("icml2025-regret", seeds=1, rounds=100_000).record_at()


def records(curves: dict[str, list[np.ndarray]]) -> pl.DataFrame:
    rows = [
        (policy, seed, int(k), float(value))
        for policy, sample in curves.items()
        for seed, curve in enumerate(sample)
        for k, value in zip(ROUNDS, curve, strict=True)
    ]
    return pl.DataFrame(rows, ["policy", "seed", "round", "regret"], orient="row")


def test_regret_that_grows_as_the_logarithm_has_its_factor_as_slope():
    factors = [3.0, 4.0, 5.5]
    found = regret_figure.slopes(
        records({"log": [factor * np.log(ROUNDS) + 7.0 for factor in factors]}),
    )
    assert found["part"].to_list() == [0, 1, 2, 3]
    interval = stats.ttest_1samp(factors, 0.0).confidence_interval(0.95)
    for row in found.to_dicts():
        assert (row["slope"], row["low"], row["high"]) == pytest.approx(
            (np.mean(factors), *interval),
        )
        assert row["deviation"] == pytest.approx(0.0)
    assert found["from"].to_list() == pytest.approx([10**3.5, 10**3.5, 10**4, 10**4.5])
    assert found["to"].to_list() == pytest.approx([10**5, 10**4, 10**4.5, 10**5])
    assert regret_figure.constant(found) == {"log": True}


def test_other_growth_is_told_apart():
    curves = {
        "log": np.log(ROUNDS),
        "square": np.log(ROUNDS) ** 2,
        "power": ROUNDS**0.25,
        "flat": 0.0 * ROUNDS,
    }
    found = regret_figure.slopes(records({name: [curve, curve] for name, curve in curves.items()}))
    assert regret_figure.constant(found) == {
        "log": True,
        "square": True,
        "power": False,
        "flat": False,
    }
    # the slope of ln^2 K is 2 ln K: over half decades, at their geometric means
    square = found.filter(pl.col("policy") == "square")["slope"].to_list()
    assert square == pytest.approx(
        [2 * np.log(10**middle) for middle in (4.25, 3.75, 4.25, 4.75)],
        rel=0.01,
    )


def test_table_and_picture(tmp_path):
    played = records(
        {"ata-icml": [3 * np.log(ROUNDS), 4 * np.log(ROUNDS)], "ata": [ROUNDS**0.5, ROUNDS**0.5]},
    )
    found = regret_figure.slopes(played)
    text = markdown([regret_figure.table(found, "100,000 rounds", {"ata": 0.5})])
    assert "K = 3.2k to 100k" in text
    assert re.search(r"^\| ata .*\| 0.50: asymptotic, not reached *\|", text, re.MULTILINE)
    assert re.search(r"^\| ata-icml .*\| none known *\|", text, re.MULTILINE)
    for policy, constant in (("ata-icml", "yes"), ("ata", "no")):
        assert re.search(rf"^\| {policy} .*\b{constant}\b", text, re.MULTILINE)
    short = played.filter(pl.col("round") <= 2)  # too few rounds for half decades prove nothing
    unknown = regret_figure.slopes(short)
    assert regret_figure.constant(unknown) == {"ata-icml": False, "ata": False}
    for bound in (RegretLowerBound(0.0, "it is a test"), RegretLowerBound(50.0, "")):
        picture = regret_figure.draw(short, unknown, {}, bound)
        assert len(style.save(picture, tmp_path / "regret")) == 2


@pytest.mark.parametrize("number", [3, 20, 48])
def test_every_name_of_a_legend_is_inside_the_picture(number):
    with style.figure(9.5, 3.6) as picture:
        axes = picture.subplots()
        for name, look in style.lines([f"policy-{k}" for k in range(number)]).items():
            axes.plot([1, 2], [1, 2], label=name, **look)
        legend(picture, axes)
        picture.draw_without_rendering()
        (made,) = picture.legends
        box = made.get_window_extent()
    assert len(made.get_texts()) == number
    assert picture.bbox.y0 <= box.y0 < box.y1 <= picture.bbox.y1
