import re
from html import unescape

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.experiment import GROUPS, Experiment, group_edges
from ata_gym.bench.report import style
from ata_gym.bench.report.page.render import render
from ata_gym.bench.runner.policy_run import SCHEMA
from ata_gym.bench.store.folder import read_frame
from ata_gym.bench.studies.benchmark_report import report_on
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from tests.page_data import parts

NAMES = ["ofta", "mine", "uta"]


def test_a_page_is_the_same_bytes_each_time_names_no_place_of_the_network_and_has_the_numbers(
    page_of,
    records_of,
):
    page = page_of(NAMES)
    assert page.lead.startswith(
        "Env TaskAllocation: mine has the least runtime of the 2 policies that learn.\n"
        "  compared with OFTA, an oracle that knows",
    )
    html = render(page)
    assert html == render(page_of(NAMES))
    assert len(html) < 1_000_000
    scripts = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", scripts)
    assert "default-src 'none'" in unescape(scripts)
    there = parts(html)
    assert there["data-runtime-0"]["x"] == [1, 10, 100, 1000]
    means = records_of(NAMES).group_by("policy", "round", maintain_order=True).mean()
    for name, series in zip(NAMES, there["data-runtime-0"]["series"], strict=True):
        assert series["mean"] == pytest.approx(
            means.filter(policy=name)["runtime"].to_list(),
            rel=1e-4,
        )
    assert {look["name"] for look in there["config"]["looks"]} == set(NAMES)
    assert len(set(style.ON_DARK.values())) == len(style.OKABE_ITO)


def test_a_picture_has_the_lower_bound_and_names_who_has_not_reached_it(note_of, records_of):
    def drawn(constant):
        report = report_on(note_of(NAMES, lower_bound=constant), records_of(NAMES), {})
        return report.pictures["regret"]()

    for constant, missed in ((200.0, "mine"), (1e5, "mine, uta"), (5.0, "")):
        picture = drawn(constant)
        (axes,) = picture.axes
        lines = {line.get_label(): line for line in axes.get_lines()}
        bound = np.asarray(lines["lower bound (asymptotic)"].get_ydata())
        np.testing.assert_allclose(bound, constant * np.log([1, 10, 100, 1000]))
        (legend,) = picture.legends
        assert "lower bound (asymptotic)" in [text.get_text() for text in legend.get_texts()]
        said = " ".join(text.get_text() for text in axes.texts).replace("\n", " ")
        assert said == (f"bound not reached by {missed}" if missed else "")
        # the axis ends not far above the curves, whose highest is 2,040 with its interval above
        assert 2_040 < axes.get_ylim()[1] < 3_200
    assert len(drawn(0.0).axes[0].get_lines()) == len(NAMES)


@pytest.mark.parametrize(("price", "order"), [(0.0, ["fast", "saving"]), (2.0, ["saving", "fast"])])
def test_what_costs_least_comes_first_the_best_learner_is_bold_and_own_policies_are_marked(
    note_of,
    price,
    order,
):
    ends = {"oracle": (0.5, 1.0), "fast": (1.0, 9.0), "saving": (2.0, 3.0)}
    rows = [
        (name, seed, 1000, time, work, 0.0, 1)
        for name, (time, work) in ends.items()
        for seed in range(3)
    ]
    note = note_of(["oracle", "saving", "fast"], price=price)
    note["policies"][1]["own"] = True
    page = report_on(note, pl.DataFrame(rows, SCHEMA, orient="row"), {}).page()
    (view,) = next(section for section in page.sections if section.id == "overview").views
    assert [row[0].text for row in view.rows] == ["oracle", *order]
    assert view.best == [order[0]]
    assert {row[0].text: row[1].text for row in view.rows}["saving"] == "learner, yours"
    assert render(page).count('<tr class="best">') == 1


@pytest.mark.parametrize(
    ("name", "policy"),
    [("icml2025-regret", "dynamic-ofta"), ("drawn-6-v1", "uta"), ("changing-spot", "dynamic-ofta")],
)
def test_the_tasks_of_workers_that_are_recorded_sum_to_the_budget(played, name, policy):
    experiment = Experiment.on_scenario(name, rounds=20, seeds=3)
    frame = read_frame(played(experiment, policy).allocations(policy))
    assert frame["round"].to_list() == experiment.record_at().tolist()
    tasks = np.array(frame["tasks"].to_list())
    scenario = experiment.scenario
    assert tasks.shape[1] == scenario.pool.n
    assert tasks.sum(axis=1) == pytest.approx(scenario.budget)
    if policy != "uta" and scenario.stationary and not scenario.pool_distribution:
        assert (np.diff(tasks, axis=1) <= 0).all()  # the fastest stand first, and get the most


def test_many_workers_are_recorded_in_groups(played):
    experiment = Experiment.on_scenario(
        Scenario(exponential(np.linspace(9.0, 1.0, 250)), 250),
        rounds=3,
        seeds=2,
    )
    tasks = read_frame(played(experiment, "uta").allocations("uta"))["tasks"].to_list()
    assert tasks == [np.diff(group_edges(250)).tolist()] * 3
    assert len(tasks[0]) == GROUPS
