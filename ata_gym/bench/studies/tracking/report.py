"""The report on tracked policies: delays and costs of the changes, in tables and on a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report.headline import (
    DESCRIPTIONS,
    Samples,
    compared_with,
    listed,
    with_intervals,
)
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import Estimate, different_pairs
from ata_gym.bench.report.summary_tables import scaled, show
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.bench.store.folder import Folder, origin
from ata_gym.bench.store.note import (
    EXPERIMENT,
    Note,
    finished_policies,
    not_finished,
    read_note,
    sizes,
)
from ata_gym.bench.studies.tracking.delays import (
    BLOCK,
    WITHIN,
    after_changes,
    delays,
    summarise,
)
from ata_gym.bench.studies.tracking.experiment import ORACLES, Window, windows_around
from ata_gym.bench.studies.tracking.pictures import Changes
from ata_gym.utils.files.json_files import fields, items
from ata_gym.utils.validation import whole_number

_SHORT_NAMES = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}
"""Short names of the oracles."""

_FIELDS = fields(
    {
        **EXPERIMENT,
        "changes": items(whole_number),
        "before": whole_number,
        "after": whole_number,
        "order": items(partial(whole_number, least=0)),
    },
)


def check_fields(name: str, value: Any) -> None:
    """Check the note of tracked policies."""
    _FIELDS(name, value)
    if sorted(value["order"]) != list(range(value["workers"])):
        raise ValueError(f"order must name each of the {value['workers']:,} workers once")
    changes = value["changes"]
    edges = [0, *changes, value["rounds"]]
    if not changes or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"changes must rise from 1 to below {value['rounds']:,}, not {changes}")


@dataclass(frozen=True)
class Tracked:
    """What tables, pictures and page are made of."""

    note: Note
    records: pl.DataFrame
    delays: pl.DataFrame
    """What ``delays`` returns."""
    summary: pl.DataFrame
    """What ``summarise`` returns."""
    origins: Sequence[tuple[str, str]]
    """Versions, commit and machine."""

    @property
    def windows(self) -> list[Window]:
        """The windows around the changes."""
        note = self.note
        return windows_around(note["changes"], note["rounds"], note["before"], note["after"])

    @property
    def changes(self) -> Changes:
        """What pictures and charts are made of."""
        return Changes(self.records, self.windows, sizes(self.note), self.note["order"])

    def samples(self) -> Samples:
        """The values of the seeds that policies are compared by."""
        return after_changes(self.records, self.windows)

    def lead(self) -> str:
        """Who follows the soonest."""
        return lead(self.delays, self.samples(), self.note["after"])

    def page(self) -> Page:
        """The page."""
        note = self.note
        size = sizes(note)
        places = {policy["name"]: place for place, policy in enumerate(note["policies"])}
        sections: list[Tables | Chart] = [
            *(part.section() for part in self.parts()),
            self.changes.curves(places),
            self.changes.allocations(),
        ]
        return Page(
            study=note["study"],
            title=size.title,
            lead=self.lead(),
            facts=[
                *size.facts(),
                ("changes", f"{len(note['changes'])}"),
                ("policies", f"{len(note['policies'])}"),
            ],
            series=[Series(policy["name"], policy["kind"]) for policy in note["policies"]],
            sections=sections,
            cards=[note["scenario"], *(policy["card"] for policy in note["policies"])],
            command=note["command"],
            origin=self.origins,
            remarks=[*note["remarks"], *not_finished(note, self.records["policy"])],
        )

    def parts(self) -> list["_Part"]:
        """The table of delays and the table of costs."""
        note = self.note
        size = sizes(note)
        if len(note["changes"]) > 1:
            changes = f"{len(note['changes'])} changes, the first"
        else:
            changes = "a change"
        if len({window.end - window.change for window in self.windows}) > 1:
            or_fewer = ", or fewer where the next one is nearer"
            at_most = " at most"
        else:
            or_fewer = ""
            at_most = ""
        played = [
            size.about,
            f"{changes} after {note['changes'][0]:,} rounds, {plural(size.seeds, 'seed')}",
        ]
        about_delays = [
            f"delay: rounds until the expected round time is within {WITHIN:.0%} of the oracle's"
            " (or OFTA's),",
            f"on average over {BLOCK} rounds; never: not within the {note['after']:,} rounds after"
            f" the change{or_fewer}",
        ]
        about_costs = [
            f"expected round times of {note['before']:,} rounds before a change and"
            f" {note['after']:,} after it{at_most},",
            "divided by the round times of the oracle that knows the distributions, and of the one"
            " that knows the means (OFTA)",
        ]
        cells = _cells(self.delays, self.summary, note["after"])
        titles = [*next(iter(cells.values()))]
        delay_titles = [title for title in titles if "\nto " in title]
        cost_titles = [title for title in titles if "\nto " not in title]
        return [
            _Part("delays", "How soon policies follow", played, about_delays, delay_titles, cells),
            _Part("costs", "What a change costs", [], about_costs, cost_titles, cells),
        ]


class _Part(NamedTuple):
    """A table, for a terminal and for the page."""

    id: str
    title: str
    """The title on the page."""
    played: Sequence[str]
    """The first lines above the table in a terminal, which say what was played."""
    about: Sequence[str]
    """Lines that say what the figures are."""
    columns: Sequence[str]
    cells: Mapping[str, Mapping[str, Cell]]
    """The cells of each policy by the titles of the columns, of which more may be there."""

    def table(self) -> Table:
        """Return the table for a terminal."""
        rows = []
        for name, row in self.cells.items():
            texts = [row[title].text for title in self.columns]
            rows.append((name, *texts))
        heading = "\n".join([*self.played, *self.about])
        return Table(heading, {"policy": LEFT, **right(self.columns)}, rows)

    def section(self) -> Tables:
        """Return the section of the page."""
        rows = [
            [Cell(name), *(row[title] for title in self.columns)]
            for name, row in self.cells.items()
        ]
        columns = [Column("policy", False), *map(Column, self.columns)]
        about = " ".join(self.about)
        note = f"{about[0].upper()}{about[1:]}. Less is better."
        return Tables(self.id, self.title, note, [TableView(columns, rows)])


def report(folder: Path) -> Report:
    """Make the report on tracked policies.

    Raises:
        DamagedError: If the note or a result is damaged.
        NothingFinishedError: If nothing has finished.
    """
    note = read_note(folder, check_fields)
    store = Folder(folder)
    names = finished_policies(folder, note)
    records = store.results(names)
    windows = windows_around(note["changes"], note["rounds"], note["before"], note["after"])
    tracked = Tracked(
        note,
        records,
        delays(records, windows),
        summarise(records, windows),
        origin([store.result(name) for name in names]),
    )
    size = sizes(note)
    scenario = pl.lit(size.title).alias("scenario")
    tables = [part.table() for part in tracked.parts()]
    return Report(
        title=f"{size.about}, {size.length}",
        summary=tracked.summary.select(scenario, pl.all()),
        tables=tables,
        findings=tracked.lead(),
        samples={size.title: tracked.samples()},
        records=records.select(scenario, pl.all()),
        page=tracked.page,
        files={
            "table.md": markdown(tables),
            "table.csv": tracked.summary,
            "delays.csv": tracked.delays,
        },
        pictures={"change": tracked.changes.draw},
        remarks=note["remarks"],
    )


def lead(delay_table: pl.DataFrame, after_change: Samples, after: int) -> str:
    """Who follows a change the soonest, who as soon, and how long its rounds are meanwhile.

    The mean delay of each seed is compared; policies are tied as ``different_pairs`` says.

    Args:
        delay_table: Delays as ``delays`` gives them; an unknown one counts as ``after`` + 1 rounds.
        after_change: Expected round times as ``after_changes`` gives them.
        after: The number of rounds in the longest window after a change.
    """
    filled = delay_table.filter(oracle=ORACLES[0]).with_columns(
        pl.col("delay").fill_null(after + 1)
    )
    mean_delays = {
        str(policy): (
            rows.group_by("seed", maintain_order=True)
            .agg(pl.col("delay").mean())["delay"]
            .to_numpy()
        )
        for (policy,), rows in filled.group_by("policy", maintain_order=True)
    }
    names = [name for name in mean_delays if name not in ORACLES] or list(mean_delays)
    policy_delays = {name: filled.filter(policy=name)["delay"].to_numpy() for name in names}
    followers = [name for name in names if np.median(policy_delays[name]) <= after]
    seeds = len(mean_delays[names[0]])
    if not followers:
        return f"No policy follows the change within {after:,} rounds in the median."
    best = min(followers, key=lambda name: float(mean_delays[name].mean()))
    different = different_pairs(mean_delays)
    tied = [name for name in names if name != best and frozenset((name, best)) not in different]
    best_delay = Estimate.from_sample(mean_delays[best])
    count = len(names)
    if seeds == 1:
        interval = ""
    else:
        interval = f" ({max(best_delay.low, 0.0):.1f} to {best_delay.high:.1f})"
    if count > 1:
        count_text = f" of {count}"
    else:
        count_text = ""
    sentence = (
        f"{best} follows a change the soonest{count_text}, after {best_delay.mean:.1f}{interval}"
        " rounds on average"
    )
    if tied:
        sentence += f", tied with {listed(tied)}"
    late_count = count - len(followers)
    if late_count:
        sentence += f"; {late_count} of {count} do not within {after:,} rounds in the median"
    references = {name: DESCRIPTIONS[name] for name in (ORACLES[0], "uta", "ata", "ata-icml")}
    lines = [
        f"{sentence}.",
        *(f"  {line}" for line in compared_with(after_change, best, references)),
    ]
    return with_intervals(lines, seeds)


def _cells(
    delay_table: pl.DataFrame, summary: pl.DataFrame, after: int
) -> dict[str, dict[str, Cell]]:
    """The cells of both tables: for each policy its texts by the titles of the columns."""
    cells: dict[str, dict[str, Cell]] = {
        policy: {} for policy in delay_table["policy"].unique(maintain_order=True)
    }
    for (policy, oracle), delay_rows in delay_table.group_by(
        "policy", "oracle", maintain_order=True
    ):
        never = delay_rows["delay"].null_count()
        figures = {
            **summarise_delays(delay_rows["delay"], after)._asdict(),
            "never": Cell(f"{never} of {len(delay_rows)}", never),
        }
        oracle_name = _SHORT_NAMES[str(oracle)]
        cells[str(policy)] |= {
            f"{name.replace('_', ' ')}\nto {oracle_name}": cell for name, cell in figures.items()
        }
    for (quantity,), quantity_rows in summary.group_by("quantity", maintain_order=True):
        part, _, oracle = str(quantity).partition("/")
        if oracle:
            title = f"{part}\n/ {_SHORT_NAMES[oracle]}"
            unit = 1.0
        else:
            title, unit = scaled(part, quantity_rows)
            title += "\nof a change"
        for policy, mean, high in quantity_rows.select("policy", "mean", "high").rows():
            cells[policy][title] = Cell(show(mean, high, unit), mean)
    return cells


class DelaySummary(NamedTuple):
    """Delays in words."""

    median_delay: Cell
    longest: Cell


def summarise_delays(delays: pl.Series, most: int) -> DelaySummary:
    """The median delay and the longest one; null is longer than ``most`` rounds.

    Example:
        >>> [cell.text for cell in summarise_delays(pl.Series([3, 5, 8]), 100)]
        ['5', '8']
        >>> [cell.text for cell in summarise_delays(pl.Series([3, None, None]), 100)]
        ['> 100', '> 100']
    """
    rounds = np.sort(delays.fill_null(most + 1).to_numpy())
    median = float(np.median(rounds))
    longest = float(rounds[-1])
    return DelaySummary(_rounds(median, most), _rounds(longest, most))


def _rounds(number: float, most: int) -> Cell:
    """The cell of a number of rounds, which is not known where it is above ``most``."""
    if number > most:
        return Cell(f"> {most:,}", number)
    return Cell(f"{number:,.0f}", number)
