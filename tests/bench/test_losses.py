"""A loss curve on the clocks of policies, and the published lines of the CIFAR-100 figure."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.report import losses, style
from ata_gym.bench.report.page import render
from ata_gym.bench.studies.paper import cifar100
from ata_gym.cli import app

CURVE = {"round": [0, 1, 4, 40], "loss": [9.0, 7.0, 5.0, 1.0]}
SMALL: dict[str, Any] = {"rounds": 40, "seeds": 2, "jobs": 1}


@pytest.fixture
def quick(monkeypatch):
    """Without the files of pictures and pages, which take most of the time of a small run."""
    monkeypatch.setattr(style, "save", lambda _made, stem, _title="": [stem.with_suffix(".png")])
    monkeypatch.setattr(render, "write", lambda _page, path: path)


def run(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def refused(line: str, sentence: str) -> None:
    result = run(line)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert sentence in result.stderr


@given(st.lists(st.floats(0.01, 9.0), min_size=2, max_size=30), st.data())
def test_the_loss_at_a_time_is_the_curve_at_the_round_that_is_over_by_then(durations, data):
    last = len(durations)
    loss = data.draw(st.lists(st.floats(-9.0, 9.0), min_size=last + 1, max_size=last + 1))
    ends = np.cumsum(durations)
    clock = pl.DataFrame({"policy": "mine", "round": np.arange(1, last + 1), "runtime": ends})
    curve = losses.loss_curve({"round": range(last + 1), "loss": loss}, np.arange(1, last + 1))
    drawn = losses.on_clocks(curve, clock.with_columns(total_worker_time=3.0 * pl.col("runtime")))
    time = data.draw(st.floats(0.0, float(ends[-1])))
    over = int(np.searchsorted(ends, time, side="right"))
    assert drawn.filter(pl.col("runtime") <= time)["loss"][-1] == loss[over]
    kept = data.draw(st.sets(st.integers(0, last - 1))) | {last - 1}
    sparse = losses.on_clocks(curve, clock.with_columns(total_worker_time=1.0)[sorted(kept)])
    assert (
        sparse["runtime"].to_numpy()[[k + 1 for k in sorted(kept)]].tolist()
        == ends[sorted(kept)].tolist()
    )
    assert (np.diff(sparse["runtime"]) >= 0).all()


@pytest.mark.usefixtures("quick")
def test_a_file_and_its_columns_are_the_same_curve_and_a_folder_keeps_it(tmp_path):
    path = tmp_path / "loss.csv"
    pl.DataFrame(CURVE).select("loss", "round").write_csv(path)
    kept = bench.run("uta", "five-workers", loss_curve=path, out=tmp_path / "out", **SMALL)
    columns = bench.run(
        ["uta"],
        ["five-workers", "icml2025-regret"],
        loss_curve=pl.DataFrame(CURVE),
        **SMALL,
    )
    note = json.loads((tmp_path / "out" / "about.json").read_text())
    curve = note["loss_curve"]
    assert curve["loss"] == pytest.approx(np.interp(curve["round"], CURVE["round"], CURVE["loss"]))
    assert {0, 1, 4, 40} <= {*curve["round"]}
    assert "same for all policies" in kept.content.findings
    assert "loss.png" in {path.name for path in kept.pictures}
    page = bench.read(tmp_path / "out").content.page()
    assert "Loss against worker time: lower is better" in [part.title for part in page.sections]
    assert f"loss_curve='{path}'" in " ".join(note["command"])
    panels = columns.plot("loss").axes
    assert len(panels) == 4
    for axes, times in zip(panels[::2], kept.plot("loss").axes[:1] * 2, strict=True):
        drawn = [line.get_ydata().tolist() for line in (*axes.get_lines(), *times.get_lines())]
        assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match="there is no picture here 'loss'"):
        bench.run("uta", "five-workers", **SMALL).plot("loss")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "round,Loss\n0,1\n",
            "has no column loss: it must have round and loss, and has round, Loss",
        ),
        (
            "round,loss\n0,3\n2,2\n2,1\n",
            "rounds must be whole numbers that rise, the first of them 0 or 1",
        ),
        ("round,loss\n2,3\n40,1\n", "the first of them 0 or 1"),
        ("round,loss\n0,3\n1.5,2\n40,1\n", "whole numbers"),
        ("round,loss\n0,3\n40,nan\n", "row 2 has the loss 'nan'; it must be a finite number"),
        ("round,loss\n0,3\n40,\n", "row 2 has the loss None"),
        (
            "round,loss\n0,3\n39,1\n",
            "ends at round 39, and 40 rounds are played: give the loss up to the last round, or",
        ),
        ("round,loss\n", "must be whole numbers"),
        ("", "loss.csv: it is empty"),
        (None, "there is no file"),
    ],
)
def test_a_bad_curve_is_refused_and_leaves_nothing(tmp_path, text, sentence):
    path = tmp_path / "loss.csv"
    out = tmp_path / "out"
    if text is not None:
        path.write_text(text)
    line = (
        "bench --scenario five-workers --policies uta --rounds 40 --seeds 1 --jobs 1 --loss-curve"
        f" {path} --out {out}"
    )
    refused(line, sentence)
    line = (
        f"reproduce icml2025-cifar100 --rounds 40 --seeds 1 --jobs 1 --loss-curve {path} --out"
        f" {out}"
    )
    refused(line, sentence)
    assert not out.exists()


def lines() -> pl.DataFrame:
    rows = [
        (axis, policy, part * getattr(end, axis), 4 - 3 * part)
        for axis in losses.CLOCKS
        for policy, end in cifar100.CIFAR100.end_points.items()
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    return pl.DataFrame(rows, ["axis", "policy", "time", "loss_above_optimum"], orient="row")


@pytest.mark.usefixtures("quick")
def test_ours_are_drawn_on_the_published_lines(tmp_path):
    path = tmp_path / "lines.csv"
    lines().write_csv(path)
    line = (
        f"reproduce icml2025-cifar100 --rounds 20 --seeds 2 --jobs 1 --published {path} --out"
        f" {tmp_path / 'out'}"
    )
    result = run(line)
    assert result.exit_code == 0, result.output
    assert "plots/loss.png" in result.output
    assert "plots/published.png" in result.output
    assert "points of their lines" not in result.output  # 20 rounds end before the first of them
    theirs = cifar100.read_lines(path, cifar100.CIFAR100)
    curve = cifar100.common_curve(theirs, 100)
    assert curve.rows() == [(k, 4 - 0.03 * k) for k in (0, 25, 50, 75, 100)]
    rows = [
        (policy, k, *(k / 100 * getattr(end, clock) for clock in losses.CLOCKS))
        for policy, end in cifar100.CIFAR100.end_points.items()
        for k in (1, 100)
    ]
    records = pl.DataFrame(rows, ["policy", "round", *losses.CLOCKS], orient="row")
    points = cifar100.distances(theirs, curve, records, 100)
    assert points["distance"].max() == pytest.approx(0.0, abs=1e-12)
    sentence = cifar100.distances_in_words(points, curve, 100)
    assert "the 40 points of their lines are on average 0.000" in sentence


def test_lines_that_are_not_all_there_are_refused(tmp_path):
    path = tmp_path / "lines.csv"
    lines().filter(pl.col("policy") != "ata").write_csv(path)
    line = f"reproduce icml2025-cifar100 --published {path} --out {tmp_path / 'out'}"
    refused(line, "it lacks ata against runtime and ata against total_worker_time")
    refused(f"{line} --loss-curve {path}", "give one of train, loss-curve and published")
    assert not (tmp_path / "out").exists()


def test_the_stored_end_points_are_those_of_the_poster_and_its_lines_have_one_loss(shared_data):
    theirs = cifar100.read_lines(shared_data / "icml2025_poster_curves.csv", cifar100.CIFAR100)
    ends = {key: line["time"][-1] for key, line in theirs.group_by("policy", "clock")}
    for policy, end in cifar100.CIFAR100.end_points.items():
        for clock in losses.CLOCKS:
            assert getattr(end, clock) == pytest.approx(ends[policy, clock], rel=1e-4)
            ratio = ends[policy, clock] / ends["ofta", clock]
            assert getattr(end, f"{clock}_to_ofta") == pytest.approx(ratio, rel=2e-4)
    curve = cifar100.common_curve(theirs, 1_000)
    for policy in cifar100.EVEN:
        for clock in losses.CLOCKS:
            line = theirs.filter(policy=policy, clock=clock)
            one = np.interp(1_000 * line["time"] / line["time"][-1], curve["round"], curve["loss"])
            assert np.abs(line["loss"] - one).mean() < 0.01
