"""The page of a leaderboard."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.leaderboard import ranking
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob, costs
from ata_gym.bench.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.bench.leaderboard.report import lead
from ata_gym.bench.page import experiment_page as charts
from ata_gym.bench.page.note import POLICIES, Note, about_policy, check_note, competitors
from ata_gym.bench.page.sections import Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report.summary_tables import over_seeds, show, title_of
from ata_gym.bench.report.table import Cell
from ata_gym.scenarios.card import CARD, scenario_card
from ata_gym.utils.json_files import fields, inner_path, items, text
from ata_gym.utils.validation import non_negative, short, whole_number

_SHOWN = (COST, TO_ORACLE, RUNTIME, WORKER_TIME)
_AXES = {"x": WORKER_TIME, "y": RUNTIME}
_DARKEST = 4.0  # the ratio from which on a cell is as dark as can be


_JOB = fields({"policy": text, "scenario": text, "prices": items(non_negative), "folder": inner_path})
_NOTE = fields({
    "title": text, "reference": text, "seeds": whole_number, "first_seed": partial(whole_number, least=0),
    "prices": items(non_negative), "remarks": items(text), "policies": POLICIES, "jobs": items(_JOB),
    "scenarios": items(fields({"name": text, "card": CARD})),
})  # fmt: skip


def _note(name: str, value: Any) -> None:
    """The rule of the note of a leaderboard."""
    _NOTE(name, value)
    known = [one["name"] for one in value["policies"]]
    for place, job in enumerate(value["jobs"]):
        if job["policy"] not in known:
            raise ValueError(f"jobs[{place}].policy must be one of the policies, not {short(job['policy'])}")
        if not job["prices"]:
            raise ValueError(f"jobs[{place}].prices must hold a price")


def about(board: Leaderboard, jobs: Sequence[PricedJob], title: str) -> Note:
    """What the page needs to know of a leaderboard."""
    return {
        "title": title, "reference": board.set.reference, "seeds": board.seeds, "first_seed": board.set.first_seed,
        "prices": list(board.prices), "remarks": list(board.notes),
        "scenarios": [{"name": one.name, "card": scenario_card(one).to_data()} for one in board.scenarios],
        "policies": [about_policy(one.policy) for one in board.competitors],
        "jobs": [
            {
                "policy": job.policy, "scenario": job.experiment.scenario.name, "prices": shown,
                "folder": job.folder.path.relative_to(board.out).as_posix(),
            }
            for _, job, prices in jobs
            if (shown := [price for price in prices if price in board.prices])
        ],
    }  # fmt: skip


def page(folder: Path, note: Note) -> Page:
    """The page of the jobs that have finished; ValueError if the reference has finished nowhere."""
    check_note(folder, note, _note)
    done = [job for job in note["jobs"] if Folder(folder / job["folder"]).finished(job["policy"])]
    with_reference = {job["scenario"] for job in done if job["policy"] == note["reference"]}
    shown = [job for job in done if job["scenario"] in with_reference]
    if not shown:
        raise ValueError(
            f"{note['reference']}, with which all are compared, has finished no scenario in {folder}: run the command "
            f"again, and it goes on where it stopped: {shlex.join(note['command'])}"
        )
    players = [Player(one["name"], one["kind"]) for one in note["policies"]]
    places = {player.name: place for place, player in enumerate(players)}
    who = {one.policy: one for one in competitors(note)}
    stores = {job["folder"]: Folder(folder / job["folder"]) for job in shown}
    ends = pl.concat(
        costs(stores[job["folder"]].results([job["policy"]]), who[job["policy"]], job["scenario"], job["prices"])
        for job in shown
    )
    ratios, seeds = ranking.ratios(ends, note["reference"]), note["seeds"]
    by_scenario, by_price = ranking.by_scenario(ratios), ranking.overall(ratios)
    sections: list[Tables | Chart] = [
        overview(by_price, ranking.overall(ratios, by_price=False), seeds), matrix(by_scenario, by_price, seeds),
        front(by_scenario, by_price, places, seeds), spread(ratios, places),
    ]  # fmt: skip
    missing = len(note["jobs"]) - len(shown)
    unfinished = [f"{missing} of {len(note['jobs'])} runs have not finished, and are not shown: run the command again."]
    remarks = [*note["remarks"], *(unfinished if missing else [])]
    sizes = {"scenarios": f"{len(note['scenarios'])}", "policies": f"{len(players)}", "seeds": charts.seeds_of(note)}
    facts = [*sizes.items(), ("prices", ", ".join(f"{price:g}" for price in note["prices"]))]
    cards = [one["card"] for one in (*note["scenarios"], *note["policies"])]
    made_by = charts.origin([stores[job["folder"]].result(job["policy"]) for job in shown])
    title, command = note["title"], note["command"]
    return Page("leaderboard", title, lead(ratios), facts, players, sections, cards, command, made_by, remarks)


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame, seeds: int) -> Tables:
    """A table for each env and price, and over all prices."""
    titles = ("cost\n/ best learner", "cost\n/ best oracle", title_of(RUNTIME), title_of(WORKER_TIME))
    numbers = [Column("policy", False), Column("rank"), Column("kind", False), *map(Column, titles)]
    numbers += [one for what in ("scenario", "seed") for one in (Column(f"worst\n{what}"), Column("which", False))]
    views = []
    for price, frame in ((None, at_all_prices), *((price, there) for (price,), there in _each(by_price, "price"))):
        for (env,), ranked in _each(frame, "env"):
            rows = []
            for row in ranked.to_dicts():
                cells = [Cell(show(row[name], row[f"{name}_high"]), row[name]) for name in _SHOWN]
                for end in ("", "_seed"):
                    ratio, where = row[f"worst{end}"], row[f"where{end}"]
                    cells += [Cell("-" if ratio is None else f"{ratio:.3g}", ratio), Cell(where or "-")]
                rank = Cell("-" if row["rank"] is None else str(row["rank"]), row["rank"])
                rows.append([Cell(row["policy"]), rank, Cell(row["kind"]), *cells])
            choice = {"env": env, "price": "all prices" if price is None else f"{price:g}"}
            views.append(TableView(numbers, rows, choice))
    note = (
        "Cost is runtime + price x worker time. Cells are geometric means over the scenarios of ratios on the same "
        f"seeds: {over_seeds(seeds, 'the geometric mean')}; 1 is as good as the best, and less is better. The worst "
        "seed is the one of a scenario on which cost / best learner is largest. Oracles know what learners must learn; "
        "baselines neither know nor learn. Click on a title to sort."
    )
    return Tables("overview", "All policies beside each other", note, views)


def matrix(by_scenario: pl.DataFrame, by_price: pl.DataFrame, seeds: int) -> Tables:
    """A table for each env and price: costs of policies in scenarios, coloured, their means and on the worst seed."""
    scenarios = by_scenario["scenario"].unique(maintain_order=True).to_list()
    columns = [Column("policy", False), *(Column(name.replace("-", "-\u200b")) for name in scenarios)]
    views = []
    shown = {"mean": COST, "worst seed": f"{COST}_worst"} if seeds > 1 else {"one seed": COST}
    for ((env, price), there), (of_seeds, column) in product(_each(by_scenario, "env", "price"), shown.items()):
        of = {(row["policy"], row["scenario"]): row[column] for row in there.to_dicts()}
        ranked = by_price.filter(env=env, price=price)["policy"].to_list()
        names = list(dict.fromkeys([*ranked, *there["policy"]]))
        rows = [[Cell(name), *(_shaded(of.get((name, one))) for one in scenarios)] for name in names]
        views.append(TableView(columns, rows, {"env": env, "price": f"{price:g}", "seeds": of_seeds}))
    note = (
        "The cost of each policy in each scenario, divided by that of the best learner there, on the same seeds: 1 is "
        "the best learner, an oracle may be below. The darker, the worse. The mean over seeds, or the worst seed."
    )
    return Tables("matrix", "Where each policy is good", note, views)


def _shaded(ratio: float | None) -> Cell:
    if ratio is None:
        return Cell("-")
    return Cell(f"{ratio:.3g}", ratio, min(1.0, max(0.0, float(np.log(ratio) / np.log(_DARKEST)))))


def front(by_scenario: pl.DataFrame, by_price: pl.DataFrame, places: Mapping[str, int], seeds: int) -> Chart:
    """Runtime against worker time over those of OFTA, in each scenario and over all."""
    everywhere = by_price.with_columns(scenario=pl.lit("all scenarios"))
    views = []
    for (scenario, price), there in _each(pl.concat([everywhere, by_scenario], how="diagonal"), "scenario", "price"):
        points = [
            {"p": places[row["policy"]]}
            | {axis: [row[f"{name}{end}"] for end in ("", "_low", "_high")] for axis, name in _AXES.items()}
            for row in there.drop_nulls([*_AXES.values()]).to_dicts()
        ]
        views.append(View({"points": points}, {"scenario": scenario, "price": f"{price:g}"}))
    made = charts.front_chart(views, " / that of OFTA", seeds)
    return made._replace(settings={**made.settings, "half": False})


def spread(ratios: pl.DataFrame, places: Mapping[str, int]) -> Chart:
    """The costs on each seed, over that of the best learner."""
    samples = []
    for (scenario, price), there in _each(ratios.drop_nulls(COST), "scenario", "price"):
        of = {policy: np.exp(mine[COST].to_numpy()) for (policy,), mine in _each(there, "policy")}
        samples.append(("cost / best learner", {"scenario": scenario, "price": f"{price:g}"}, of))
    return charts.spread(samples, places)


def _each(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    return iter(frame.group_by(by, maintain_order=True))
