"""The page of a leaderboard."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.report.page import experiment_page as charts
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView, View
from ata_gym.bench.report.summary_tables import over_seeds, show, title_of
from ata_gym.bench.report.table import Cell
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.store.note import POLICIES, Note, about_policy, check_note, competitors
from ata_gym.bench.studies.leaderboard import ranking
from ata_gym.bench.studies.leaderboard.experiment import Leaderboard, PricedJob, costs
from ata_gym.bench.studies.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.bench.studies.leaderboard.report import lead
from ata_gym.scenarios.card import CARD, scenario_card
from ata_gym.utils.json_files import fields, inner_path, items, text
from ata_gym.utils.validation import non_negative, short, whole_number

_SHOWN_QUANTITIES = (COST, TO_ORACLE, RUNTIME, WORKER_TIME)
_AXES = {"x": WORKER_TIME, "y": RUNTIME}
_DARKEST_RATIO = 4.0  # the ratio from which on a cell is as dark as can be

_JOB = fields(
    {"policy": text, "scenario": text, "prices": items(non_negative), "folder": inner_path},
)
_NOTE = fields(
    {
        "title": text,
        "reference": text,
        "seeds": whole_number,
        "first_seed": partial(whole_number, least=0),
        "prices": items(non_negative),
        "remarks": items(text),
        "policies": POLICIES,
        "jobs": items(_JOB),
        "scenarios": items(fields({"name": text, "card": CARD})),
    },
)


def _note(name: str, value: Any) -> None:
    """Check the note of a leaderboard."""
    _NOTE(name, value)
    names = [policy["name"] for policy in value["policies"]]
    for place, job in enumerate(value["jobs"]):
        if job["policy"] not in names:
            raise ValueError(
                f"jobs[{place}].policy must be one of the policies, not {short(job['policy'])}",
            )
        if not job["prices"]:
            raise ValueError(f"jobs[{place}].prices must hold a price")


def about(board: Leaderboard, jobs: Sequence[PricedJob], title: str) -> Note:
    """Return what the page needs to know of a leaderboard.

    Args:
        board: The leaderboard.
        jobs: Its jobs.
        title: The title of the page.
    """
    return {
        "title": title,
        "reference": board.set.reference,
        "seeds": board.seeds,
        "first_seed": board.set.first_seed,
        "prices": list(board.prices),
        "remarks": list(board.notes),
        "scenarios": [
            {"name": scenario.name, "card": scenario_card(scenario).to_data()}
            for scenario in board.scenarios
        ],
        "policies": [about_policy(competitor.policy) for competitor in board.competitors],
        "jobs": [
            {
                "policy": job.policy,
                "scenario": job.experiment.scenario.name,
                "prices": shown_prices,
                "folder": job.folder.path.relative_to(board.out).as_posix(),
            }
            for _, job, prices in jobs
            if (shown_prices := [price for price in prices if price in board.prices])
        ],
    }


def page(folder: Path, note: Note) -> Page:
    """Make the page of the jobs that have finished.

    Scenarios in which the reference has not finished are left out.

    Raises:
        DamagedError: If the note or a result is damaged.
        ValueError: If the reference has finished nowhere.
    """
    check_note(folder, note, _note)
    finished_jobs = [
        job for job in note["jobs"] if Folder(folder / job["folder"]).finished(job["policy"])
    ]
    with_reference = {
        job["scenario"] for job in finished_jobs if job["policy"] == note["reference"]
    }
    shown_jobs = [job for job in finished_jobs if job["scenario"] in with_reference]
    if not shown_jobs:
        raise ValueError(
            f"{note['reference']}, with which all are compared, has finished no scenario in"
            f" {folder}: run the command again, and it goes on where it stopped:"
            f" {shlex.join(note['command'])}",
        )
    players = [Series(policy["name"], policy["kind"]) for policy in note["policies"]]
    places = {player.name: place for place, player in enumerate(players)}
    competitor_of = {competitor.policy: competitor for competitor in competitors(note)}
    stores = {job["folder"]: Folder(folder / job["folder"]) for job in shown_jobs}
    ends = pl.concat(
        costs(
            stores[job["folder"]].results([job["policy"]]),
            competitor_of[job["policy"]],
            job["scenario"],
            job["prices"],
        )
        for job in shown_jobs
    )
    ratios = ranking.ratios(ends, note["reference"])
    seeds = note["seeds"]
    by_scenario = ranking.by_scenario(ratios)
    by_price = ranking.overall(ratios)
    sections: list[Tables | Chart] = [
        overview(by_price, ranking.overall(ratios, by_price=False), seeds),
        matrix(by_scenario, by_price, seeds),
        front(by_scenario, by_price, places, seeds),
        spread(ratios, places),
    ]
    remarks = [*note["remarks"]]
    missing = len(note["jobs"]) - len(shown_jobs)
    if missing:
        remarks.append(
            f"{missing} of {len(note['jobs'])} runs have not finished, and are not shown: run the"
            " command again.",
        )
    return Page(
        study="leaderboard",
        title=note["title"],
        lead=lead(ratios),
        facts=[
            ("scenarios", f"{len(note['scenarios'])}"),
            ("policies", f"{len(players)}"),
            ("seeds", charts.seeds_of(note)),
            ("prices", ", ".join(f"{price:g}" for price in note["prices"])),
        ],
        players=players,
        sections=sections,
        cards=[subject["card"] for subject in (*note["scenarios"], *note["policies"])],
        command=note["command"],
        origin=charts.origin([stores[job["folder"]].result(job["policy"]) for job in shown_jobs]),
        remarks=remarks,
    )


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame, seeds: int) -> Tables:
    """Make a table for each env and price, and over all prices.

    Args:
        by_price: What ``ranking.overall`` returns for each price.
        at_all_prices: What it returns over all prices.
        seeds: The number of seeds.
    """
    columns = [
        Column("policy", False),
        Column("rank"),
        Column("kind", False),
        Column("cost\n/ best learner"),
        Column("cost\n/ best oracle"),
        Column(title_of(RUNTIME)),
        Column(title_of(WORKER_TIME)),
        Column("worst\nscenario"),
        Column("which", False),
        Column("worst\nseed"),
        Column("which", False),
    ]
    frames = [("all prices", at_all_prices)]
    frames += [
        (f"{price:g}", rows_at_price) for (price,), rows_at_price in _each(by_price, "price")
    ]
    views = []
    for price, frame in frames:
        for (env,), ranked in _each(frame, "env"):
            rows = [_cells(row) for row in ranked.to_dicts()]
            views.append(TableView(columns, rows, {"env": env, "price": price}))
    note = (
        "Cost is runtime + price x worker time. Cells are geometric means over the scenarios of"
        f" ratios on the same seeds: {over_seeds(seeds, 'the geometric mean')}; 1 is as good as the"
        " best, and less is better. The worst seed is the one of a scenario on which cost / best"
        " learner is largest. Oracles know what learners must learn; baselines neither know nor"
        " learn. Click on a title to sort."
    )
    return Tables("overview", "All policies beside each other", note, views)


def _cells(row: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a policy in the table of all policies."""
    if row["rank"] is None:
        rank = Cell("-")
    else:
        rank = Cell(str(row["rank"]), row["rank"])
    cells = [Cell(row["policy"]), rank, Cell(row["kind"])]
    cells += [Cell(show(row[name], row[f"{name}_high"]), row[name]) for name in _SHOWN_QUANTITIES]
    for suffix in ("", "_seed"):
        ratio = row[f"worst{suffix}"]
        if ratio is None:
            cells.append(Cell("-"))
        else:
            cells.append(Cell(f"{ratio:.3g}", ratio))
        cells.append(Cell(row[f"where{suffix}"] or "-"))
    return cells


def matrix(by_scenario: pl.DataFrame, by_price: pl.DataFrame, seeds: int) -> Tables:
    """Make a table for each env and price: the cost of each policy in each scenario, coloured.

    The costs are means over the seeds, or those on the worst seed.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        by_price: What ``ranking.overall`` returns for each price.
        seeds: The number of seeds.
    """
    scenarios = by_scenario["scenario"].unique(maintain_order=True).to_list()
    columns = [Column("policy", False)]
    # Names of scenarios may break after a hyphen.
    columns += [Column(name.replace("-", "-\u200b")) for name in scenarios]
    views = []
    if seeds > 1:
        columns_by_name = {"mean": COST, "worst seed": f"{COST}_worst"}
    else:
        columns_by_name = {"one seed": COST}
    for ((env, price), cells), (statistic, column) in product(
        _each(by_scenario, "env", "price"),
        columns_by_name.items(),
    ):
        ratios = {(row["policy"], row["scenario"]): row[column] for row in cells.to_dicts()}
        ranked = by_price.filter(env=env, price=price)["policy"].to_list()
        # The ranked policies come first; the others have not played all scenarios.
        names = list(dict.fromkeys([*ranked, *cells["policy"]]))
        rows = [
            [Cell(name), *(_shaded(ratios.get((name, scenario))) for scenario in scenarios)]
            for name in names
        ]
        views.append(
            TableView(columns, rows, {"env": env, "price": f"{price:g}", "seeds": statistic}),
        )
    note = (
        "The cost of each policy in each scenario, divided by that of the best learner there, on"
        " the same seeds: 1 is the best learner, an oracle may be below. The darker, the worse. The"
        " mean over seeds, or the worst seed."
    )
    return Tables("matrix", "Where each policy is good", note, views)


def _shaded(ratio: float | None) -> Cell:
    """Return the cell of a ratio, the darker, the larger it is."""
    if ratio is None:
        return Cell("-")
    shade = float(np.log(ratio) / np.log(_DARKEST_RATIO))
    return Cell(f"{ratio:.3g}", ratio, min(1.0, max(0.0, shade)))


def front(
    by_scenario: pl.DataFrame,
    by_price: pl.DataFrame,
    places: Mapping[str, int],
    seeds: int,
) -> Chart:
    """Make the chart of runtime against worker time, in each scenario and over all.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        by_price: What ``ranking.overall`` returns for each price.
        places: The place of each policy in the list of the page.
        seeds: The number of seeds.
    """
    everywhere = by_price.with_columns(scenario=pl.lit("all scenarios"))
    views = []
    frame = pl.concat([everywhere, by_scenario], how="diagonal")
    for (scenario, price), cells in _each(frame, "scenario", "price"):
        points = []
        for row in cells.drop_nulls([*_AXES.values()]).to_dicts():
            point: dict[str, Any] = {"p": places[row["policy"]]}
            for axis, name in _AXES.items():
                point[axis] = [row[f"{name}{suffix}"] for suffix in ("", "_low", "_high")]
            points.append(point)
        views.append(View({"points": points}, {"scenario": scenario, "price": f"{price:g}"}))
    chart = charts.front_chart(views, " / that of OFTA", seeds)
    return chart._replace(settings={**chart.settings, "half": False})


def spread(ratios: pl.DataFrame, places: Mapping[str, int]) -> Chart:
    """Make the chart of the costs on each seed, divided by the cost of the best learner.

    Args:
        ratios: What ``ranking.ratios`` returns.
        places: The place of each policy in the list of the page.
    """
    samples = []
    for (scenario, price), cells in _each(ratios.drop_nulls(COST), "scenario", "price"):
        ratios_by_policy = {
            policy: np.exp(policy_rows[COST].to_numpy())
            for (policy,), policy_rows in _each(cells, "policy")
        }
        samples.append(
            ("cost / best learner", {"scenario": scenario, "price": f"{price:g}"}, ratios_by_policy)
        )
    return charts.spread(samples, places)


def _each(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Iterate over the parts of a frame that have the same values in some columns, in its order."""
    return iter(frame.group_by(by, maintain_order=True))
