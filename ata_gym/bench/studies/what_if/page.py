"""The report on what stragglers cost: tables, sentences, pictures and the page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from matplotlib.ticker import PercentFormatter

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import charts, style
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView
from ata_gym.bench.report.pictures import Drawing, Panel
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import Estimate, estimate, estimates
from ata_gym.bench.report.table import LEFT, RIGHT, Cell, Table
from ata_gym.bench.store.note import Note
from ata_gym.bench.studies.what_if.ways import AS_IT_IS, LEARNS
from ata_gym.typing import Floats, Ints
from ata_gym.utils.files.json_files import fields, items, number, text
from ata_gym.utils.validation import non_negative, real, whole_number

STATE = "state.json"
"""The file of what the default policy has learned."""
DATA = "what-if.json"
"""The file of all figures."""

NOTE = fields(
    {
        "log": text,
        **dict.fromkeys(("steps", "workers", "budget"), whole_number),
        **dict.fromkeys(("runtime", "worker_time"), real),
        **dict.fromkeys(("idle", "perfect"), number),
        "remarks": items(text),
        "waited_for": items(
            fields({"worker": text, **dict.fromkeys(("last", "lost", "mean"), non_negative)}),
        ),
    },
)
"""The rule of the note of a log."""

_SHOWN_WORKERS = 12
"""The largest number of workers in the terminal and in the picture."""

_LOG_PARTS = 10
"""The number of parts of a log, one after the other, over which intervals are taken."""

_PART_STEPS = 5
"""The least number of steps of a part."""

_LEAST_SAVING = 0.02
"""The part of the runtime below which a change is not worth it."""

_ABOUT_WAYS = (
    "Each way plays the logged times of the same steps. The interval is one of 95 % over ten parts"
    " of the log. Worker time is the time of all workers together, over the time that they computed"
    " as it was. Policies that learn start without knowledge; a race starts more than B tasks, and"
    " cancels what is late."
)
_ABOUT_WORKERS = (
    "Lost is the time of a step in which all others had finished. The mean time is the time of a"
    " share, as logged."
)


def report_on(
    note: Note,
    steps: pl.DataFrame,
    state: str,
    origins: Sequence[tuple[str, str]] = (),
) -> Report:
    """Make the report on a log.

    Args:
        note: The note of the log.
        steps: The steps in all ways, as ``replay.frame_of`` returns them.
        state: What the default policy has learned, as the text of ``state.json``.
        origins: Versions, commit and machine.
    """
    content = _WaysContent(note, steps, origins)
    # comparisons are over the steps that all ways have played
    parts = log_parts(min(content.steps_by_way.values()))
    samples = {
        quantity: {
            name: np.array([values[part].sum() for part in parts])
            for name, values in content.values(column).items()
        }
        for quantity, column in (("runtime", "round_time"), ("total_worker_time", "worker_time"))
    }
    data = json.dumps(content.to_data(), indent=2, allow_nan=False)
    return Report(
        title=content.title,
        summary=content.summary(),
        tables=content.tables(),
        findings=content.findings,
        samples={note["log"]: samples},
        records=content.records.select(pl.lit(note["log"]).alias("scenario"), pl.all()),
        page=content.page,
        files={DATA: data, STATE: state},
        pictures={
            "runtime": Drawing([[Panel(content.runtime_chart())]], [*content.kinds]),
            "waiting": content.draw_waiting,
        },
        remarks=note["remarks"],
        paired_by="log part",
    )


@dataclass(frozen=True)
class _WaysContent:
    """What the tables, the pictures and the page of a log are made of."""

    note: Note
    steps: pl.DataFrame
    origins: Sequence[tuple[str, str]]

    @property
    def title(self) -> str:
        """The log and its sizes."""
        note = self.note
        return (
            f"{note['log']}: n = {note['workers']}, B = {note['budget']},"
            f" {plural(note['steps'], 'step')}"
        )

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each way, by its name."""
        return dict(self.steps.select("policy", "kind").unique(maintain_order=True).rows())

    def values(self, column: str) -> dict[str, Floats]:
        """A column of the steps of each way, (steps,)."""
        return {name: self.steps.filter(policy=name)[column].to_numpy() for name in self.kinds}

    @cached_property
    def steps_by_way(self) -> dict[str, int]:
        """The number of steps that each way has played, from the first on."""
        return {name: len(values) for name, values in self.values("round_time").items()}

    @cached_property
    def records(self) -> pl.DataFrame:
        """The steps with runtime and total worker time, each added up from the first step on."""
        sums = {"runtime": "round_time", "total_worker_time": "worker_time"}
        return self.steps.select(
            "policy",
            "kind",
            "round",
            *(pl.col(column).cum_sum().over("policy").alias(name) for name, column in sums.items()),
        )

    @cached_property
    def savings(self) -> dict[str, Estimate]:
        """The part of the runtime that each way saves, but the one as it is.

        It is compared with the same steps as they were. The interval is over their parts, and NaN
        if they are too few.
        """
        times = self.values("round_time")
        logged_times = times.pop(AS_IT_IS)
        savings = {}
        for name, way_times in times.items():
            saved = 1.0 - float(way_times.sum() / logged_times[: len(way_times)].sum())
            with np.errstate(invalid="ignore", divide="ignore"):
                by_part = [
                    1.0 - way_times[part].sum() / logged_times[part].sum()
                    for part in log_parts(len(way_times))
                ]
            half = float(estimate(np.array(by_part))[1])
            savings[name] = Estimate(saved, saved - half, saved + half)
        return savings

    @cached_property
    def worker_times(self) -> dict[str, float]:
        """The time that all workers were busy in each way."""
        return {name: float(values.sum()) for name, values in self.values("worker_time").items()}

    def summary(self) -> pl.DataFrame:
        """The figures of each way: what it saves, its runtime and its worker time."""
        unsaved = Estimate(0.0, np.nan, np.nan)
        rows = []
        for name, kind in self.kinds.items():
            runtime = float(self.steps.filter(policy=name)["round_time"].to_numpy().sum())
            rows += [
                (name, kind, "saved", self.savings.get(name, unsaved)),
                (name, kind, "runtime", Estimate(runtime, np.nan, np.nan)),
                (
                    name,
                    kind,
                    "total_worker_time",
                    Estimate(self.worker_times[name], np.nan, np.nan),
                ),
            ]
        return estimates(rows, ["policy", "kind", "quantity"])

    @property
    def findings(self) -> str:
        """Whether another way is worth it, and what stragglers cost, a line each."""
        cost = (
            f"Workers waited in {100 * self.note['idle']:.1f} % of the worker time that was paid; a"
            " perfect split of each step, known beforehand, would save"
            f" {100 * self.note['perfect']:.1f} % of the runtime."
        )
        return f"{self.verdict}\n{cost}"

    @property
    def verdict(self) -> str:
        """Whether another way is worth it."""
        return verdict(self.savings, self.kinds, self.steps_by_way, self.note["perfect"])

    def way_rows(self) -> list[tuple[str, ...]]:
        """For each way its name and kind, what it saves, half its interval, and its worker time.

        The worker time is relative to the logged worker time.
        """
        logged_times = self.values("worker_time")[AS_IT_IS]
        rows: list[tuple[str, ...]] = [(AS_IT_IS, "", "0.0", "", "1.000")]
        for name, saving in self.savings.items():
            if np.isnan(saving.high):
                half = ""
            else:
                half = f"{100 * (saving.high - saving.mean):.1f}"
            steps = self.steps_by_way[name]
            kind = self.kinds[name]
            if steps < self.note["steps"]:
                kind = f"{kind}, first {steps:,} steps"
            worker_time = self.worker_times[name] / logged_times[:steps].sum()
            rows.append((name, kind, f"{100 * saving.mean:z.1f}", half, f"{worker_time:.3f}"))
        return rows

    def most_waited_for(self) -> list[dict[str, Any]]:
        """The workers that were waited for longest, the worst first."""
        waited_for = sorted(self.note["waited_for"], key=lambda worker: -worker["lost"])
        return waited_for[:_SHOWN_WORKERS]

    def tables(self) -> list[Table]:
        """Who was waited for, and what the other ways would give back."""
        workers = [
            (
                worker["worker"],
                f"{100 * worker['last']:.1f}",
                f"{100 * worker['lost']:.1f}",
                f"{worker['mean']:.4g}",
            )
            for worker in self.most_waited_for()
        ]
        if self.note["workers"] > _SHOWN_WORKERS:
            rest_text = f"; {self.note['workers'] - _SHOWN_WORKERS} more"
        else:
            rest_text = ""
        worker_columns = {
            "worker": LEFT,
            "% of steps last": RIGHT,
            "% of runtime lost": RIGHT,
            "mean time": RIGHT,
        }
        way_columns = {
            "what": LEFT,
            "how": LEFT,
            "saves %": RIGHT,
            "± %": RIGHT,
            "worker time": RIGHT,
        }
        steps_text = f"the same {self.note['steps']:,} steps in other ways"
        return [
            Table(f"who was waited for{rest_text}", worker_columns, workers),
            Table(f"{steps_text}, B = {self.note['budget']}", way_columns, self.way_rows()),
        ]

    def to_data(self) -> dict[str, Any]:
        """All figures as values that JSON can hold; half of no interval is None."""
        sizes = ("log", "steps", "workers", "budget", "runtime", "worker_time", "idle", "perfect")
        alternatives = []
        for name, saving in self.savings.items():
            half: float | None = saving.high - saving.mean
            if np.isnan(saving.high):
                half = None
            alternatives.append(
                {
                    "name": name,
                    "kind": self.kinds[name],
                    "steps": self.steps_by_way[name],
                    "saved": saving.mean,
                    "half": half,
                    "worker_time": self.worker_times[name],
                },
            )
        return {
            **{name: self.note[name] for name in sizes},
            "verdict": self.verdict,
            "remarks": self.note["remarks"],
            "waited_for": self.note["waited_for"],
            "alternatives": alternatives,
        }

    def runtime_chart(self) -> Chart:
        """The chart of the runtime so far in each way."""
        places = {name: place for place, name in enumerate(self.kinds)}
        # a curve ends with the steps that its way has played
        every_step = pl.DataFrame({"round": np.arange(1, self.note["steps"] + 1)})
        grid = pl.DataFrame({"policy": [*self.kinds]}).join(every_step, how="cross")
        records = grid.join(self.records, on=["policy", "round"], how="left", maintain_order="left")
        records = records.with_columns(seed=pl.lit(0))
        chart = charts.curves(records, "runtime", places, seeds=1)
        return chart._replace(
            title="Runtime so far: lower is better",
            note="The time until all steps so far were over.",
            settings={**chart.settings, "x": "step", "logX": False, "logY": False},
        )

    def draw_waiting(self) -> style.Picture:
        """Draw for each worker in how many steps it was last, and the runtime lost to it."""
        workers = self.most_waited_for()
        titles = {"last": "part of the steps in which it was last", "lost": "runtime lost to it"}
        with style.figure(7.5, 1.2 + 0.28 * len(workers)) as picture:
            panels = picture.subplots(1, len(titles), sharey=True)
            for panel, (column, title) in zip(panels, titles.items(), strict=True):
                rows = range(len(workers))
                lengths = [worker[column] for worker in workers]
                panel.barh(rows, lengths, height=0.7, color=style.OKABE_ITO[0])
                panel.set(title=title, yticks=rows)
                panel.set_yticklabels([worker["worker"] for worker in workers])
                panel.xaxis.set_major_formatter(PercentFormatter(1.0))
            panels[0].invert_yaxis()
        return picture

    def page(self) -> Page:
        """The page of the log."""
        note = self.note
        numbers = [Column("saves %"), Column("± %"), Column("worker time")]
        way_table = TableView(
            [Column("what", False), Column("how", False), *numbers],
            [[*map(Cell, row)] for row in self.way_rows()],
        )
        facts = [
            ("workers n", f"{note['workers']:,}"),
            ("steps", f"{note['steps']:,}"),
            ("tasks B", f"{note['budget']:,}"),
            ("price", "0"),
        ]
        return Page(
            study=note["study"],
            title=note["log"],
            lead=self.findings,
            facts=facts,
            series=[Series(name, kind) for name, kind in self.kinds.items()],
            sections=[
                Tables(
                    "ways",
                    "The same steps in other ways: more saved is better",
                    _ABOUT_WAYS,
                    [way_table],
                ),
                self.runtime_chart(),
                self._worker_section(),
            ],
            cards=[],
            command=note["command"],
            origin=self.origins,
            remarks=note["remarks"],
        )

    def _worker_section(self) -> Tables:
        """The table of all workers."""
        waited_for = self.note["waited_for"]
        largest_loss = max(worker["lost"] for worker in waited_for) or 1.0
        rows = [
            [
                Cell(worker["worker"]),
                _percent(worker["last"]),
                _percent(worker["lost"])._replace(shade=worker["lost"] / largest_loss),
                Cell(f"{worker['mean']:.4g}", worker["mean"]),
            ]
            for worker in waited_for
        ]
        columns = [
            Column("worker", False),
            Column("% of steps last"),
            Column("% of runtime lost"),
            Column("mean time"),
        ]
        return Tables("workers", "Who was waited for", _ABOUT_WORKERS, [TableView(columns, rows)])


def log_parts(steps: int) -> list[Ints]:
    """Return the indices of the steps of each part of a log; one part if the log is short."""
    count = max(1, min(_LOG_PARTS, steps // _PART_STEPS))
    return np.array_split(np.arange(steps), count)


def _percent(part: float) -> Cell:
    return Cell(f"{100 * part:.1f}", part)


def verdict(
    savings: Mapping[str, Estimate],
    kinds: Mapping[str, str],
    steps: Mapping[str, int],
    perfect: float,
) -> str:
    """Return whether another way is worth it, in a sentence.

    Args:
        savings: The part of the runtime that each way saves.
        kinds: The kind of each way.
        steps: The number of steps that each way has played.
        perfect: The part that a perfect split of each step, known beforehand, would save.
    """
    # the first policy speaks for all; without policies the best fixed split does
    name = next((name for name in savings if kinds[name] == LEARNS), next(iter(savings)))
    saving = savings[name]
    half = saving.high - saving.mean
    part = ""
    if steps[name] < steps[AS_IT_IS]:
        part = f" of the first {steps[name]:,} steps"
    clause = (
        f"{name} would save {100 * saving.mean:z.1f} % (± {100 * half:.1f}) of the runtime{part} at"
        " price 0"
    )
    if perfect < _LEAST_SAVING:
        return (
            "Not worth it: workers are near equal; a perfect split of each step would save"
            f" {100 * perfect:.1f} %."
        )
    if np.isnan(half):
        return (
            f"The log is too short to say: {name} would save {100 * saving.mean:z.1f} % of its"
            f" runtime{part}."
        )
    if saving.low > _LEAST_SAVING:
        return f"Worth it: {clause}, by other shares alone."
    if saving.high < _LEAST_SAVING:
        if "race" in savings and savings["race"].low > _LEAST_SAVING:
            race_text = (
                " A race, which cancels what is late, would save"
                f" {100 * savings['race'].mean:.1f} %."
            )
        else:
            race_text = ""
        return f"Not worth it: {clause}, by other shares alone.{race_text}"
    return (
        f"Nothing follows: {clause}, and less than {100 * _LEAST_SAVING:g} % would not be worth it."
    )
