"""The slope of the proxy regret against ln K."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ata_gym.bench import paper as regret_figure
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.report.table import markdown

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
    found = regret_figure.slopes(records({"log": [factor * np.log(ROUNDS) + 7.0 for factor in factors]}))
    assert found["part"].to_list() == [0, 1, 2, 3]
    interval = stats.ttest_1samp(factors, 0.0).confidence_interval(0.95)
    for row in found.to_dicts():
        assert (row["slope"], row["low"], row["high"]) == pytest.approx((np.mean(factors), *interval))
        assert row["deviation"] == pytest.approx(0.0)
    assert found["from"].to_list() == pytest.approx([10**3.5, 10**3.5, 10**4, 10**4.5])
    assert found["to"].to_list() == pytest.approx([10**5, 10**4, 10**4.5, 10**5])
    assert regret_figure.constant(found) == {"log": True}


def test_other_growth_is_told_apart():
    curves = {"log": np.log(ROUNDS), "square": np.log(ROUNDS) ** 2, "power": ROUNDS**0.25, "flat": 0.0 * ROUNDS}
    found = regret_figure.slopes(records({name: [curve, curve] for name, curve in curves.items()}))
    assert regret_figure.constant(found) == {"log": True, "square": True, "power": False, "flat": False}
    # the slope of ln^2 K is 2 ln K: over half decades, at their geometric means
    square = found.filter(pl.col("policy") == "square")["slope"].to_list()
    assert square == pytest.approx([2 * np.log(10**middle) for middle in (4.25, 3.75, 4.25, 4.75)], rel=0.01)


def test_table_and_picture(tmp_path):
    played = records({"ata-icml": [3 * np.log(ROUNDS), 4 * np.log(ROUNDS)], "ata": [ROUNDS**0.5, ROUNDS**0.5]})
    found = regret_figure.slopes(played)
    text = markdown([regret_figure.table(found, "100,000 rounds")])
    assert "K = 3.2k to 100k" in text
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "yes" in lines["ata-icml"]
    assert "no" in lines["ata"]
    short = played.filter(pl.col("round") <= 2)  # too few rounds for half decades prove nothing
    unknown = regret_figure.slopes(short)
    assert regret_figure.constant(unknown) == {"ata-icml": False, "ata": False}
    pictures = [regret_figure.draw(played, found, "test", tmp_path / name) for name in "ab"]
    assert [path.read_bytes() for path in pictures[0]] == [path.read_bytes() for path in pictures[1]]
    assert len(regret_figure.draw(short, unknown, "short", tmp_path / "regret")) == 2
