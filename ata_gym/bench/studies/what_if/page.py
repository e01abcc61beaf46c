"""The report on what stragglers cost: tables, sentences, pictures and the page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import charts
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView
from ata_gym.bench.report.pictures import Drawing, Panel
from ata_gym.bench.report.report import LOG_PART, Report
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Cell, Table
from ata_gym.bench.store.note import Note
from ata_gym.bench.studies.what_if import answer
from ata_gym.bench.studies.what_if.off_policy.answers import ESTIMATES, REPLAY
from ata_gym.bench.studies.what_if.off_policy.doubly_robust import effective_size
from ata_gym.bench.studies.what_if.pictures import draw_waiting, heat_chart
from ata_gym.bench.studies.what_if.savings import least_saved, log_parts, saved
from ata_gym.bench.studies.what_if.waiting import SHOWN_WORKERS, worst_first
from ata_gym.bench.studies.what_if.ways import AS_IT_IS
from ata_gym.typing import Floats
from ata_gym.utils.files.json_files import fields, items, nullable, number, text
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
        "rest": nullable(non_negative),
        **dict.fromkeys(("unit", "doubt"), text),
        "remarks": items(text),
        "waited_for": items(
            fields(
                {
                    **dict.fromkeys(("worker", "when"), text),
                    **dict.fromkeys(("last", "lost", "mean"), non_negative),
                },
            ),
        ),
    },
)
"""The rule of the note of a log."""

_ABOUT_WAYS = (
    "Each way plays the logged times of the same steps. The interval is one of 95 % over ten parts"
    " of the log; the more neighbouring parts are alike, the wider it is. Worker time is the time"
    " of all workers together, over the time that they computed as it was. Policies that learn"
    " start without knowledge; a race starts more than B tasks, and cancels what is late. The time"
    " of a share counts as the time of its tasks, but for the latency of a log that has one, or"
    " shows one by shares of different sizes; where sizes never vary, the data cannot show a"
    " fixed cost. Transfers that take place while workers wait today take time of their own when"
    " shares balance, and are in none of these times. Not in log is the part of a way's tasks"
    " that the log does not have: tasks of a worker beyond its own in that step. They take its"
    " mean time in the step, or in its last one."
)
_ABOUT_ESTIMATES = (
    " Doubly robust (DR) estimates count 1/p times how far a recorded time is from the worker's"
    " last time before, where the log's policy gave it tasks with probability p; for the runtime, p"
    " is the probability of the whole allocation, since a step's time is no sum over workers."
)
_OF_LEARNERS = (
    "Doubly robust estimates are of the allocations that a policy makes on the replayed times: what"
    " other times would have taught a policy that learns is not in them."
)
_TITLES = {"round_time": "DR\nsaves %", "worker_time": "DR worker\ntime"}
_SAVED = {"round_time": "saved_doubly_robust", "worker_time": "worker_time_saved_doubly_robust"}
_ABOUT_WORKERS = (
    "Lost is the time of a step in which all others had finished: in the mean of all steps, and in"
    " % of {whole}. Workers that end a step together share that they were last. The mean time is"
    " the time of a share."
)


def report_on(
    note: Note,
    steps: pl.DataFrame,
    times: pl.DataFrame,
    doubts: pl.DataFrame,
    state: str,
    origins: Sequence[tuple[str, str]] = (),
) -> Report:
    """Make the report on a log.

    Args:
        note: The note of the log.
        steps: The steps in all ways, as ``off_policy.answers`` has them.
        times: The relative times, as ``waiting.heat_frame`` returns them.
        doubts: What does not follow from the log, as ``off_policy.answers`` has it.
        state: What the default policy has learned, as the text of ``state.json``.
        origins: Versions, commit and machine.
    """
    content = _WaysContent(note, steps, times, doubts, origins)
    # comparisons are over the steps that all ways have played
    parts = log_parts(min(content.steps_by_way.values()))
    samples: dict[str, dict[str, Floats]] = {"runtime": {}, "total_worker_time": {}}
    for quantity, column in (("runtime", "round_time"), ("total_worker_time", "worker_time")):
        for name, values in content.values(column).items():
            samples[quantity][name] = np.array([values[part].sum() for part in parts])
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
            "waiting": partial(draw_waiting, times, note),
        },
        remarks=content.remarks,
        paired_by=LOG_PART,
        beside="waiting",
    )


@dataclass(frozen=True)
class _WaysContent:
    """What the tables, the pictures and the page of a log are made of."""

    note: Note
    steps: pl.DataFrame
    times: pl.DataFrame
    doubts: pl.DataFrame
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
        sums = pl.col("round_time", "worker_time").cum_sum().over("policy")
        records = self.steps.select("policy", "kind", "round", sums)
        return records.rename({"round_time": "runtime", "worker_time": "total_worker_time"})

    @cached_property
    def savings(self) -> dict[str, Estimate]:
        """The part of the whole that each way saves, but the one as it is."""
        times = self.values("round_time")
        logged_times = times.pop(AS_IT_IS)
        return {name: saved(way_times, logged_times) for name, way_times in times.items()}

    def corrected(self, column: str) -> dict[str, Estimate]:
        """The part of the logged costs that each way saves, by doubly robust estimates.

        Ways of which nothing follows are left out.

        Args:
            column: The column of costs, round_time or worker_time.
        """
        logged_costs = self.values(column)[AS_IT_IS]
        return {
            name: saved(costs, logged_costs)
            for name, costs in self.values(f"{column}_corrected").items()
            if not np.isnan(costs).any()
        }

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """The doubly robust estimates of the log, by the columns of costs; empty without them."""
        played = {*self.doubts["of"], *(name for name in ESTIMATES if self.corrected(name))}
        return {name: self.corrected(name) for name in ESTIMATES if name in played}

    @cached_property
    def least_savings(self) -> dict[str, float]:
        """The part that each way saves in the part of the log in which it saves least."""
        times = self.values("round_time")
        logged_times = times.pop(AS_IT_IS)
        return {name: least_saved(way_times, logged_times) for name, way_times in times.items()}

    @cached_property
    def not_in_log(self) -> dict[str, dict[str, float]]:
        """The parts of each way that are not in the log: of its tasks, worker time and steps.

        The last is the part of its tasks whose worker has none in the step.
        """
        sums = self.steps.group_by("policy").agg(
            tasks=pl.col("not_in_log").sum() / pl.col("tasks").sum(),
            worker_time=pl.col("time_not_in_log").sum() / pl.col("worker_time").sum(),
            steps=(pl.col("not_in_log") > 0).mean(),
            tasks_from_other_steps=pl.col("from_other_steps").sum() / pl.col("tasks").sum(),
        )
        return {row.pop("policy"): row for row in sums.rows(named=True)}

    @cached_property
    def worker_times(self) -> dict[str, float]:
        """The time that all workers were busy in each way."""
        return {name: float(values.sum()) for name, values in self.values("worker_time").items()}

    def summary(self) -> pl.DataFrame:
        """The figures of each way: what it saves, its runtime, its worker time, its support."""
        unsaved = Estimate(0.0, np.nan, np.nan)
        rows = []
        for name, kind in self.kinds.items():
            runtime = float(self.steps.filter(policy=name)["round_time"].to_numpy().sum())
            values = {
                "runtime": runtime,
                "total_worker_time": self.worker_times[name],
                "not_in_log": self.not_in_log[name]["tasks"],
            }
            quantities = {"saved": self.savings.get(name, unsaved)}
            quantities |= {key: Estimate(value, np.nan, np.nan) for key, value in values.items()}
            for column, by_way in self.estimates.items():
                if name in by_way:
                    quantities[_SAVED[column]] = by_way[name]
            rows += [(name, kind, key, value) for key, value in quantities.items()]
        return estimates(rows, ["policy", "kind", "quantity"])

    @property
    def findings(self) -> str:
        """Who was waited for, whether another way is worth it, and the cost, a line each."""
        lines = [self.verdict, answer.cost(self.note)]
        # a log that cannot say what waiting cost does not say who was waited for
        if not self.note["doubt"]:
            lines.insert(0, answer.who(self.note))
        return "\n".join(lines)

    @cached_property
    def verdict(self) -> str:
        """Whether another way is worth it."""
        unbearable = dict(self.doubts.filter(of=REPLAY).select("policy", "reason").rows())
        corrected = self.estimates.get("round_time", {})
        verdict = answer.verdict(
            self.savings | corrected,
            {name: np.nan if name in corrected else x for name, x in self.least_savings.items()},
            self.kinds,
            self.steps_by_way,
            self.note,
            unbearable,
        )
        if any(f": {name} would save" in verdict for name in corrected):
            verdict += " This is the doubly robust estimate."
        return verdict

    @property
    def remarks(self) -> list[str]:
        """What a reader should know of the log, and what does not follow from it."""
        remarks = answer.remarks(self.note)
        if self.estimates:
            remarks.append(_OF_LEARNERS)
        return [*remarks, *(answer.doubt(*row) for row in self.doubts.rows())]

    def way_rows(self) -> list[tuple[str, ...]]:
        """For each way its name and kind, what it saves, half its interval, and its worker time.

        The worker time is relative to the logged worker time. The part of its tasks that is not in
        the log follows, and the doubly robust estimates, if the log has them.
        """
        logged_times = self.values("worker_time")[AS_IT_IS]
        blanks = [""] * len(self.estimates)
        rows: list[tuple[str, ...]] = [(AS_IT_IS, "", "0.0", "", "1.000", "0.0", *blanks)]
        for name, saving in self.savings.items():
            steps = self.steps_by_way[name]
            kind = self.kinds[name]
            if steps < self.note["steps"]:
                kind = f"{kind}, first {steps:,} steps"
            worker_time = self.worker_times[name] / logged_times[:steps].sum()
            rows.append(
                (
                    name,
                    kind,
                    f"{100 * saving.mean:z.1f}",
                    answer.half_text(saving),
                    f"{worker_time:.3f}",
                    f"{100 * self.not_in_log[name]['tasks']:.1f}",
                    *(
                        answer.interval_text(column, by_way[name]) if name in by_way else "-"
                        for column, by_way in self.estimates.items()
                    ),
                ),
            )
        return rows

    def way_titles(self) -> list[str]:
        """The titles of the columns of the table of ways."""
        titles = ["what", "how", "saves %", "± %", "worker\ntime", "not in\nlog %"]
        return titles + [_TITLES[name] for name in self.estimates]

    def worker_titles(self) -> list[str]:
        """The titles of the columns of the table of workers."""
        if self.note["unit"] == "s":
            lost, mean = "ms of a step lost", "mean ms"
        else:
            lost, mean = "lost in a step", "mean time"
        return ["worker", "% of steps last", "when most was lost", lost, "% lost", mean]

    def worker_texts(self, worker: Mapping[str, Any]) -> tuple[str, ...]:
        """The cells of the row of a worker."""
        lost = answer.lost_per_step(worker, self.note)
        return (
            worker["worker"],
            f"{100 * worker['last']:.1f}",
            worker["when"],
            answer.aligned(lost, self.note),
            f"{100 * worker['lost']:.1f}",
            answer.aligned(worker["mean"], self.note),
        )

    def tables(self) -> list[Table]:
        """Who was waited for, and what the other ways would give back."""
        workers = [self.worker_texts(worker) for worker in worst_first(self.note)[:SHOWN_WORKERS]]
        if self.note["workers"] > SHOWN_WORKERS:
            rest_text = f"; {self.note['workers'] - SHOWN_WORKERS} more"
        else:
            rest_text = ""
        alignments = [LEFT, RIGHT, WRAP, RIGHT, RIGHT, RIGHT]
        worker_columns = dict(zip(self.worker_titles(), alignments, strict=True))
        way_columns = dict.fromkeys(self.way_titles(), RIGHT) | {"what": LEFT, "how": WRAP}
        steps_text = f"the same {self.note['steps']:,} steps in other ways"
        whole = answer.whole(self.note)
        return [
            Table(f"who was waited for, in % of {whole}{rest_text}", worker_columns, workers),
            Table(
                f"{steps_text}, B = {self.note['budget']}, in % of {whole}",
                way_columns,
                self.way_rows(),
            ),
        ]

    def to_data(self) -> dict[str, Any]:
        """All figures as values that JSON can hold; half of no interval is None."""
        sizes = ("log", "steps", "workers", "budget", "unit", "runtime", "rest", "worker_time")
        parts = ("idle", "perfect", "doubt")
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
                    "not_in_log": self.not_in_log[name],
                    "doubly_robust": {
                        column: self._estimate_data(column, name)
                        for column, by_way in self.estimates.items()
                        if name in by_way
                    },
                    "doubts": self.doubts.filter(policy=name)["reason"].to_list(),
                },
            )
        return {
            **{name: self.note[name] for name in (*sizes, *parts)},
            "whole": answer.whole(self.note),
            "verdict": self.verdict,
            "remarks": answer.remarks(self.note),
            "waited_for": self.note["waited_for"],
            "alternatives": alternatives,
        }

    def _estimate_data(self, column: str, way: str) -> dict[str, float | None]:
        """A doubly robust estimate as values that JSON can hold."""
        estimated = self.estimates[column][way]
        half = estimated.high - estimated.mean
        return {
            "saved": estimated.mean,
            "half": None if np.isnan(half) else half,
            "effective_steps": effective_size(self.values(f"{column}_weight")[way]),
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

    def page(self) -> Page:
        """The page of the log."""
        note = self.note
        way_table = TableView(
            [
                Column(title.replace("\n", " "), title not in ("what", "how"))
                for title in self.way_titles()
            ],
            [[*map(Cell, row)] for row in self.way_rows()],
        )
        about_ways = _ABOUT_WAYS
        if self.estimates:
            about_ways += _ABOUT_ESTIMATES
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
                heat_chart(self.times, note),
                self._worker_section(),
                Tables(
                    "ways",
                    "The same steps in other ways: more saved is better",
                    about_ways,
                    [way_table],
                ),
                self.runtime_chart(),
            ],
            cards=[],
            command=note["command"],
            origin=self.origins,
            remarks=self.remarks,
        )

    def _worker_section(self) -> Tables:
        """The table of all workers."""
        worst = worst_first(self.note)
        largest_loss = worst[0]["lost"] or 1.0
        rows = []
        for worker in worst:
            name, last, when, lost, part, mean = self.worker_texts(worker)
            rows.append(
                [
                    Cell(name),
                    Cell(last, worker["last"]),
                    Cell(when),
                    Cell(lost, answer.lost_per_step(worker, self.note)),
                    Cell(part, worker["lost"], worker["lost"] / largest_loss),
                    Cell(mean, worker["mean"]),
                ],
            )
        words = ("worker", "when most was lost")
        columns = [Column(title, title not in words) for title in self.worker_titles()]
        about = _ABOUT_WORKERS.format(whole=answer.whole(self.note))
        return Tables("workers", "Who was waited for", about, [TableView(columns, rows)])
