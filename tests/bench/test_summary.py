import numpy as np
import polars as pl
import pytest
from scipy import stats

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.quantities import title, with_cost_regret
from ata_gym.bench.report.statistics import Estimate, summarise
from ata_gym.bench.report.summary_tables import show, summary_tables
from ata_gym.bench.report.table import LEFT, Table, markdown
from ata_gym.bench.studies.paper import cifar100 as published


def records(runtimes: dict[str, list[float]]) -> pl.DataFrame:
    rows = [
        (policy, seed, k, runtime * k / 2, 5 * runtime * k, None if policy == "gta" else 1.0 * k, 3)
        for policy, sample in runtimes.items()
        for seed, runtime in enumerate(sample)
        for k in (1, 2)
    ]
    schema = ["policy", "seed", "round", "runtime", "total_worker_time", "regret", "support"]
    return pl.DataFrame(rows, schema, orient="row")


def row(summary: pl.DataFrame, policy: str, quantity: str) -> tuple[float, float, float]:
    return summary.row(
        by_predicate=(pl.col("policy") == policy) & (pl.col("quantity") == quantity),
    )[2:]


def test_ratios_are_paired_by_seed():
    summary = summarise(records({"ofta": [1.0, 2.0], "uta": [3.0, 8.0], "gta": [0.5, 1.0]}))
    mean, low, high = row(summary, "uta", "runtime/ofta")
    interval = stats.ttest_1samp(np.log([3.0, 4.0]), 0.0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((12**0.5, *np.exp(interval)))
    assert row(summary, "uta", "total_worker_time/gta")[0] == pytest.approx(48**0.5)
    assert (row(summary, "ofta", "runtime/ofta"), row(summary, "uta", "runtime")[0]) == (
        (1.0, 1.0, 1.0),
        5.5,
    )
    assert (row(summary, "uta", "regret"), row(summary, "gta", "regret")) == (
        (2.0, 2.0, 2.0),
        (None, None, None),
    )


def test_dynamic_oracles_are_compared_with_where_they_were_played_and_a_price_adds_the_cost():
    played = {"uta": [3.0, 8.0], "dynamic-ofta": [1.0, 2.0], "dynamic-oracle": [0.5, 2.0]}
    summary = summarise(records(played), price=0.1)
    means = {
        "runtime/dynamic-ofta": 12**0.5,
        "runtime/dynamic-oracle": 24**0.5,
        "cost": 5.5 + 0.1 * 55.0,
    }
    for quantity, mean in {**means, "cost/dynamic-ofta": 12**0.5}.items():
        assert row(summary, "uta", quantity)[0] == pytest.approx(mean)
    assert title("runtime/dynamic-ofta") == "runtime\n/ dynamic\nOFTA"


def test_tables_show_what_was_played_and_no_more():
    def tables(runtimes, seeds=2):
        experiment = Experiment.on_scenario("icml2025-regret", rounds=2, seeds=seeds)
        return summary_tables(summarise(records(runtimes)), experiment.sizes)

    assert len(tables({"uta": [3.0, 8.0]})) == 1
    text = markdown(tables({"uta": [3.0, 8.0], "gta": [1.0, 1.0]}))
    assert "| uta    |" in text
    assert "runtime / GTA" in text
    assert "OFTA" not in text
    assert "nan" not in text.lower()
    assert "±" not in markdown(tables({"uta": [3.0], "ofta": [1.0]}, seeds=1))


@pytest.mark.parametrize(
    ("mean", "high", "unit", "text"),
    [
        (1234.5, 1236.0, 1.0, "1234 ± 2"),
        (5.849e8, 5.850e8, 1e8, "5.849 ± 0.001"),
        (1.4003757, 1.4003758, 1.0, "1.4004"),
        (2.0, 2.0, 1.0, "2"),
        (0.01, 3.0, 1.0, "0 ± 3"),
        (7.0, None, 1.0, "7"),
        (-2.0, -1.5, 1.0, "-2.0 ± 0.5"),
    ],
)
def test_numbers_show_the_digits_that_are_certain(mean, high, unit, text):
    assert show(mean, high, unit) == text


def test_in_a_notebook_markdown_is_written_and_not_shown(monkeypatch):
    table = Table("numbers", {"name": LEFT}, [("uta",)])
    before = markdown([table])
    shown = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *output: shown.append(output))
    assert (markdown([table]), shown) == (before, [])


def published_summary(factor: float = 1.0) -> pl.DataFrame:
    rows = [
        (policy, quantity, *[there * (factor if policy == "ata" else 1.0)] * 3)
        for policy, end in published.CIFAR100.end_points.items()
        for quantity, there in zip(published.QUANTITIES, end, strict=True)
    ]
    return pl.DataFrame(rows, ["policy", "quantity", "mean", "low", "high"], orient="row")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, True), (1.0049, True), (0.994, False), (1.006, False)],
)
def test_a_reproduction_stands_only_within_the_tolerance(factor, expected):
    figure = published.CIFAR100
    comparison = published.compare(figure, published_summary(factor), figure.rounds)
    reproduced, sentence = published.verdict(figure, comparison, figure.rounds)
    assert reproduced == expected
    assert sentence.startswith("Reproduced" if expected else "Not reproduced")
    assert comparison.filter(policy="ata")["deviation"].to_list() == pytest.approx([factor - 1] * 4)


def test_a_run_of_another_length_is_not_compared():
    comparison = published.compare(published.CIFAR100, published_summary(), 1000)
    assert comparison["deviation"].is_null().all()
    assert set(comparison["quantity"]) == {"runtime/ofta", "total_worker_time/ofta"}
    said = published.verdict(published.CIFAR100, comparison, 1000)[1]
    assert "not comparable" in said
    assert "750,000" in said


def test_the_published_ratios_are_those_of_the_published_totals():
    ends = published.CIFAR100.end_points
    for end in ends.values():
        ratios = (
            end.runtime / ends["ofta"].runtime,
            end.total_worker_time / ends["ofta"].total_worker_time,
        )
        assert ratios == pytest.approx(
            (end.runtime_to_ofta, end.total_worker_time_to_ofta),
            rel=1e-4,
        )


def test_a_ratio_over_scenarios_is_the_geometric_mean_of_all():
    """Not the median over scenarios, of which one may be far from the others."""
    mine = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 2.0], [80.0, 90.0, 70.0]])
    theirs = np.full((3, 3), 2.0)
    found = Estimate.from_ratios(mine, theirs)
    each_seed = np.log(mine / theirs).mean(axis=0)
    interval = stats.ttest_1samp(each_seed, 0.0).confidence_interval(0.95)
    assert found.mean == pytest.approx(stats.gmean(mine / theirs, axis=None))
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


@pytest.mark.parametrize(
    ("cost", "regret"),
    [(1.5, 15.0), (0.5, -15.0), (1.0 + 1e-7, 0.0), (1.0 - 1e-7, 0.0)],
)
def test_a_cost_regret_below_0_is_shown_as_it_is(cost, regret):
    """It says that the least cost is none; a difference within the errors of both costs is 0."""
    records = pl.DataFrame({"round": [30], "expected_cost": [30 * cost]})
    assert with_cost_regret(records, 1.0)["cost_regret"].to_list() == pytest.approx(
        [regret],
        abs=0.0,
    )
