"""The report on a leaderboard: what a folder holds, ranked, in tables, a picture and a page."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment import seeds_in_words
from ata_gym.bench.report import charts
from ata_gym.bench.report.headline import (
    Samples,
    headline_of_env,
    leaders,
    more_or_less,
    with_intervals,
)
from ata_gym.bench.report.page.sections import Chart, Page, Series, Tables
from ata_gym.bench.report.quantities import noun
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.table import LEFT, WRAP, Table, markdown, right
from ata_gym.bench.role import Role
from ata_gym.bench.store.folder import Folder, origin
from ata_gym.bench.store.note import POLICIES, Note, NothingFinishedError, read_note, roles
from ata_gym.bench.studies.leaderboard import front, ranking, tables, timings
from ata_gym.bench.studies.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.scenarios.card import CARD
from ata_gym.utils.files.json_files import fields, inner_path, items, text
from ata_gym.utils.validation import non_negative, short, whole_number

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds,"
    " of the cost divided by the cost of the best learner of the same env, scenario and price, on"
    " the same seeds, and with several seeds half its 95 % confidence interval; columns with /"
    " oracle divide by the best oracle instead. Oracles know what learners must learn; baselines"
    " neither know nor learn. OFTA is the OFTA of each round where workers change. The worst seed"
    " is the one of a scenario on which the ratio is largest; in brackets it stands next to the"
    " mean. cells.csv has the figures of every seed."
)
"""The paragraph that explains the tables."""

_RATIOS = {"cost": COST, "runtime": RUNTIME, "total_worker_time": WORKER_TIME}
"""The ratio that the headlines use for each quantity."""

_JOB = fields(
    {"policy": text, "scenario": text, "prices": items(non_negative), "folder": inner_path},
)
_SCENARIO = fields(
    {
        **dict.fromkeys(("name", "summary"), text),
        **dict.fromkeys(("workers", "budget", "rounds"), whole_number),
        "card": CARD,
    },
)
_FIELDS = fields(
    {
        **dict.fromkeys(("title", "reference", "front"), text),
        "seeds": whole_number,
        "first_seed": partial(whole_number, least=0),
        "prices": items(non_negative),
        "remarks": items(text),
        "defaults": fields({}, other_fields=text),
        "policies": POLICIES,
        "jobs": items(_JOB),
        "scenarios": items(_SCENARIO),
    },
)


def check_fields(name: str, value: Any) -> None:
    """Check the note of a leaderboard."""
    _FIELDS(name, value)
    names = [policy["name"] for policy in value["policies"]]
    for place, job in enumerate(value["jobs"]):
        if job["policy"] not in names:
            raise ValueError(
                f"jobs[{place}].policy must be one of the policies, not {short(job['policy'])}",
            )
        if not job["prices"]:
            raise ValueError(f"jobs[{place}].prices must hold a price")


@dataclass(frozen=True)
class Board:
    """What the finished jobs of a folder say; tables, picture and page are made of it."""

    note: Note
    finals: pl.DataFrame
    """What ``ranking.costs`` returns, of all policies."""
    ratios: pl.DataFrame
    """What ``ranking.ratios`` returns."""
    by_scenario: pl.DataFrame
    """What ``ranking.by_scenario`` returns."""
    by_price: pl.DataFrame
    """What ``ranking.overall`` returns for each price."""
    at_all_prices: pl.DataFrame
    """What ``ranking.overall`` returns over all prices."""
    points: pl.DataFrame
    """The rows of ``by_scenario`` for the picture, where oracles have played at more prices."""
    kept: timings.Kept
    """What was measured of decisions."""
    remarks: Sequence[str]
    """Sentences that a reader should know."""
    origins: Sequence[tuple[str, str]]
    """Versions, commit and machine."""

    @property
    def policies(self) -> list[str]:
        """The names of the policies, in the order of the note."""
        return [policy["name"] for policy in self.note["policies"]]

    def samples(self) -> dict[str, Samples]:
        """The values of the seeds, by scenario and price; the cost comes first."""
        samples: dict[str, Samples] = {}
        for (scenario, price), cells in ranking.parts(self.finals, "scenario", "price"):
            samples[f"{scenario} at price {price:g}"] = {
                quantity: {
                    str(policy): rows[quantity].to_numpy()
                    for (policy,), rows in ranking.parts(cells, "policy")
                }
                for quantity in _RATIOS
            }
        return samples

    def summary(self) -> pl.DataFrame:
        """The means over all scenarios at each price, a row for each quantity."""
        return pl.concat(
            self.by_price.select(
                *("env", "price", "policy", "kind", "rank"),
                pl.lit(quantity).alias("quantity"),
                pl.col(quantity).alias("mean"),
                pl.col(f"{quantity}_low").alias("low"),
                pl.col(f"{quantity}_high").alias("high"),
            )
            for quantity in ranking.QUANTITIES
        )

    def cells(self) -> pl.DataFrame:
        """The figures of every seed."""
        return self.finals.join(
            self.ratios.with_columns(pl.col(ranking.QUANTITIES).exp()),
            on=ranking.CELL,
            maintain_order="left",
        )

    def page(self) -> Page:
        """The page."""
        note = self.note
        seeds = note["seeds"]
        series = [Series(policy["name"], policy["kind"]) for policy in note["policies"]]
        places = {line.name: place for place, line in enumerate(series)}
        standings = tables.standings(self.by_price, self.at_all_prices)
        sections: list[Tables | Chart] = [
            tables.overview_section(standings, seeds),
            tables.matrix_section(tables.matrices(self.by_scenario, self.by_price), seeds),
            front.chart(self.by_scenario, self.by_price, places, seeds),
            self._spread(places),
            *timings.section(self.kept, self.policies),
        ]
        return Page(
            study=note["study"],
            title=note["title"],
            lead=lead(self.ratios),
            facts=[
                ("scenarios", f"{len(note['scenarios'])}"),
                ("policies", f"{len(series)}"),
                ("seeds", seeds_in_words(seeds, note["first_seed"])),
                ("prices", ", ".join(f"{price:g}" for price in note["prices"])),
            ],
            series=series,
            sections=sections,
            cards=[subject["card"] for subject in (*note["scenarios"], *note["policies"])],
            command=note["command"],
            origin=self.origins,
            remarks=self.remarks,
        )

    def _spread(self, places: Mapping[str, int]) -> Chart:
        """The chart of the costs on each seed, divided by the cost of the best learner."""
        samples = []
        for (scenario, price), cells in ranking.parts(
            self.ratios.drop_nulls(COST), "scenario", "price"
        ):
            ratios_by_policy = {
                str(policy): np.exp(rows[COST].to_numpy())
                for (policy,), rows in ranking.parts(cells, "policy")
            }
            choice = {"scenario": str(scenario), "price": f"{price:g}"}
            samples.append(("cost / best learner", choice, ratios_by_policy))
        return charts.spread(samples, places)


def read_board(folder: Path) -> Board:
    """Read what has finished in the folder of a leaderboard.

    Scenarios in which the reference has not finished are left out.

    Raises:
        DamagedError: If the note or a result is damaged.
        NothingFinishedError: If the reference has finished nowhere.
    """
    note = read_note(folder, check_fields)
    stores = {job["folder"]: Folder(folder / job["folder"]) for job in note["jobs"]}
    finished = [job for job in note["jobs"] if stores[job["folder"]].finished(job["policy"])]
    with_reference = {job["scenario"] for job in finished if job["policy"] == note["reference"]}
    jobs = [job for job in finished if job["scenario"] in with_reference]
    if not jobs:
        raise NothingFinishedError(
            f"{note['reference']}, with which all are compared, has finished no scenario in"
            f" {folder}: run the command again, and it goes on where it stopped:"
            f" {shlex.join(note['command'])}",
        )
    role_of = {role.policy: role for role in roles(note)}
    finals = pl.concat(
        ranking.costs(
            stores[job["folder"]].results([job["policy"]]),
            role_of[job["policy"]],
            job["scenario"],
            job["prices"],
        )
        for job in jobs
    )
    all_ratios = ranking.ratios(finals, note["reference"])
    at_its_prices = pl.col("price").is_in([float(price) for price in note["prices"]])
    ratios = all_ratios.filter(at_its_prices)
    measured = timings.read(folder)
    remarks = [*note["remarks"]]
    missing = len(note["jobs"]) - len(jobs)
    if missing:
        remarks.append(
            f"{missing} of {len(note['jobs'])} runs have not finished, and are not shown: run the"
            " command again.",
        )
    if measured.remark:
        remarks.append(measured.remark)
    remarks += timings.remarks(measured.kept, [*role_of])
    by_scenario = ranking.by_scenario(all_ratios)
    return Board(
        note,
        finals.filter(at_its_prices),
        ratios,
        by_scenario.filter(at_its_prices),
        ranking.overall(ratios),
        ranking.overall(ratios, by_price=False),
        by_scenario.filter(scenario=note["front"]),
        measured.kept,
        remarks,
        origin([stores[job["folder"]].result(job["policy"]) for job in jobs]),
    )


def report(folder: Path) -> Report:
    """Make the report on a leaderboard.

    Raises:
        DamagedError: If the note or a result is damaged.
        NothingFinishedError: If nothing has finished.
    """
    board = read_board(folder)
    note = board.note
    standings = tables.standings(board.by_price, board.at_all_prices)
    short_tables = [
        *tables.overview(standings),
        *tables.default_tables(board.by_scenario, board.finals, note["defaults"]),
    ]
    times = timings.tables(board.kept, board.policies)
    # A terminal shows nothing else that says what was played.
    first, *further = short_tables
    titled = replace(first, title=f"{note['title']}\n{first.title}")
    pictures = {}
    if board.points.height:
        pictures["front"] = partial(front.draw, board.points, note["front"], note["title"])
    files: dict[str, str | pl.DataFrame] = {
        "leaderboard.md": _markdown(board, standings, short_tables, [*pictures]),
        "leaderboard.csv": board.by_price,
        "scenarios.csv": board.by_scenario,
        "cells.csv": board.cells(),
    }
    if times:
        files[timings.MARKDOWN] = markdown(times)
    if len(note["prices"]) > 1:
        case = "scenario-price pair"
    else:
        case = "scenario"
    return Report(
        title=note["title"],
        summary=board.summary(),
        tables=[titled, *further, *times],
        findings=lead(board.ratios),
        samples=board.samples(),
        records=board.cells(),
        page=board.page,
        files=files,
        pictures=pictures,
        remarks=board.remarks,
        case=case,
    )


def _markdown(
    board: Board,
    standings: tables.Standings,
    short_tables: Sequence[Table],
    pictures: Sequence[str],
) -> str:
    """Return the text of leaderboard.md."""
    note = board.note
    compact = [
        *tables.side_by_side(standings, note["defaults"]),
        *tables.constants(board.by_price),
    ]
    matrices = tables.matrices(board.by_scenario, board.by_price)
    long = [*tables.in_each_scenario(matrices), _scenarios_played(note["scenarios"])]
    links = [
        f"![Runtime against worker time of every policy](plots/{name}.png)\n" for name in pictures
    ]
    return "\n".join(
        [
            f"## {note['title']}\n",
            *(f"{paragraph}\n" for paragraph in (*note["remarks"], LEGEND)),
            markdown(compact),
            markdown(short_tables),
            *links,
            markdown(long),
        ],
    )


def _scenarios_played(scenarios: Sequence[Note]) -> Table:
    """Return a table of the scenarios that were played, from the note."""
    rows = [
        (
            scenario["name"],
            *(f"{scenario[size]:,}" for size in ("workers", "budget", "rounds")),
            scenario["summary"],
        )
        for scenario in scenarios
    ]
    columns = {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": WRAP}
    return Table("The scenarios", columns, rows)


def lead(ratios: pl.DataFrame) -> str:
    """Return the headline of each env, over all scenarios and prices, and at price 0.

    Args:
        ratios: What ``ranking.ratios`` returns.
    """
    lines = _headlines(ratios, *_RATIOS)
    free_ratios = ratios.filter(price=0.0)
    if not lines:
        return "No learner was played: oracles and baselines are shown next to each other."
    lines = ["Over all scenarios and prices:", *lines]
    if 0 < free_ratios.height < ratios.height:
        lines += [
            "At price 0, where runtime alone counts:",
            *_headlines(free_ratios, "runtime", "total_worker_time"),
        ]
    return with_intervals(lines, ratios["seed"].n_unique())


def _headlines(ratios: pl.DataFrame, *quantities: str) -> list[str]:
    """Return the headline of each env, which ranks by the first of some quantities."""
    means = ranking.by_seed(ratios).filter(pl.col(COST).is_not_null())
    lines = []
    for (env,), env_means in ranking.parts(means, "env"):
        means_by_policy = {
            str(policy): rows.sort("seed") for (policy,), rows in ranking.parts(env_means, "policy")
        }
        samples: dict[str, dict[str, Any]] = {name: {} for name in quantities}
        played = []
        for policy, rows in means_by_policy.items():
            played.append(Role(policy, str(env), rows["kind"][0]))
            for name in quantities:
                samples[name][policy] = np.exp(rows[_RATIOS[name]].to_numpy())
        lines.append(headline_of_env(samples, played))
        # All have the same env, so there is one leader.
        (best,) = leaders(samples, played)
        for rival, column in {"best learner": COST, "best oracle": TO_ORACLE}.items():
            logarithms = means_by_policy[best][column].cast(pl.Float64).to_numpy()
            ratio_text = more_or_less(Estimate.from_logarithms(logarithms), noun(quantities[0]))
            if ratio_text:
                lines.append(f"  compared with the {rival} of each scenario: {ratio_text}")
    return lines
