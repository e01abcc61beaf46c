"""Pictures: every file is there, and the same each time."""

from __future__ import annotations

import matplotlib as mpl
import polars as pl
import pytest

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.report import CURVES, draw, legend, panel, report
from ata_gym.bench.report.statistics import summarise
from ata_gym.pools import read_trace
from ata_gym.scenarios import Scenario


def test_pictures_and_tables_are_the_same_bytes_each_time(played):
    experiment = Experiment.on_scenario("icml2025-regret", rounds=40, seeds=3)
    policies = ["gta", "ofta", "ata-icml"]
    folder, bytes_of = played(experiment, *policies), []
    for width in (None, 9.0):  # the user's own style changes nothing
        with mpl.rc_context({"lines.linewidth": width} if width else {}):
            made = report(experiment, policies, folder)
        names = [path.relative_to(folder.path).as_posix() for path in made.pictures]
        expected = [f"plots/{stem}.{kind}" for stem in ("runtime", "worker_time", "regret") for kind in ("png", "svg")]
        assert names == expected
        bytes_of.append([path.read_bytes() for path in (*made.files, *made.pictures)])
    assert bytes_of[0] == bytes_of[1]
    assert bytes_of[0][2].startswith(b"\x89PNG")
    assert b"</svg>" in bytes_of[0][3]


def test_races_alone_have_no_picture_of_regret(played, tmp_path, monkeypatch):
    monkeypatch.setattr(style, "save", lambda _made, stem, _title: [stem])
    experiment = Experiment.on_scenario("icml2025-regret", rounds=5, seeds=2)
    pictures = draw(played(experiment, "gta").results(["gta"]), experiment, tmp_path)
    assert [path.name for path in pictures] == ["runtime", "worker_time"]


@pytest.mark.parametrize("rounds", [1, 3])
def test_recorded_times_of_zero_are_drawn_and_compared(played, tmp_path, rounds):
    (tmp_path / "trace.csv").write_text("w,k,t\na,1,0\nb,1,0\na,2,0\nb,2,0\na,3,1\nb,3,2\n")
    pool = read_trace(tmp_path / "trace.csv", worker="w", duration="t", round="k")
    experiment = Experiment.on_scenario(Scenario(pool, 2), rounds=rounds, seeds=2)
    records = played(experiment, "gta", "ofta").results(["gta", "ofta"])
    with style.figure(18.0, 3.0) as picture:
        for axes, curves in zip(picture.subplots(1, len(CURVES)), CURVES.values(), strict=True):
            if curves.quantity in records.columns:
                panel(axes, records, curves)
        legend(picture, picture.axes[0])
        picture.draw_without_rendering()
    ratio = summarise(records).row(by_predicate=(pl.col("policy") == "gta") & (pl.col("quantity") == "runtime/ofta"))
    assert ratio[2] == (None if rounds < 3 else 1.0)


def test_a_policy_has_its_own_line_in_any_company():
    alone = style.lines(["ata"])["ata"]
    names = ["mine", "ata", "uta", "yours", "gta"]
    lines = style.lines(names)
    assert lines["ata"] == alone
    assert len({line["color"] for line in lines.values()}) == len(names)
    assert list(lines) == names
    crowd = style.lines([*names, *(f"policy-{k}" for k in range(50))])
    assert len({(line["color"], line["linestyle"]) for line in crowd.values()}) == len(crowd)
