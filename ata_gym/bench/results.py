"""What policies did on scenarios, for a notebook: tables, comparisons, pictures and a page."""

import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.ticker import PercentFormatter

from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.given import GivenPolicy, name_among
from ata_gym.bench.page import render
from ata_gym.bench.page.experiment_page import experiment_page
from ata_gym.bench.page.note import Note, competitors
from ata_gym.bench.page.sections import joined
from ata_gym.bench.report import losses, statistics, style
from ata_gym.bench.report.headline import (
    NOUNS,
    Samples,
    different_in_ratio,
    in_brackets,
    more_or_less,
    tie_among,
    what_counts,
)
from ata_gym.bench.report.report import CURVES, Report, findings, known, legend, panel
from ata_gym.bench.report.statistics import Estimate, ends, summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import html
from ata_gym.typing import Floats
from ata_gym.utils.atomic import check_place
from ata_gym.utils.errors import described
from ata_gym.utils.validation import unknown
from ata_policies.registry import Given


class Comparison(NamedTuple):
    """One policy beside another one, on the same seeds."""

    sentence: str
    ratio: Estimate  # of the costs (without a price: the runtimes): the geometric mean over scenarios and seeds
    wins: Estimate  # the share of paired runs, each on the same seed and scenario, in which the policy costs less
    tied: bool  # whether nothing follows: the two do not differ clearly, among all policies that were played

    def __repr__(self) -> str:
        return self.sentence


class Part(NamedTuple):
    """What policies did on one scenario."""

    experiment: Experiment
    records: pl.DataFrame
    """Of the policies that have finished, as of ``cost_regret.CostRun``, with the column cost_regret."""
    tasks: Mapping[str, tuple[list[int], Floats]]  # the recorded rounds, and the tasks of each group of workers in them
    note: Note  # what the page needs to know
    origin: Sequence[tuple[str, str]]  # Versions, commit and machine
    report: Report | None = None  # what was left in the folder of the results; None where there is none


class Results:
    """What :func:`ata_gym.bench.run` has found out; a notebook shows it as tables."""

    def __init__(
        self, parts: Sequence[Part], failures: Mapping[str, Exception], remarks: Sequence[str] = (),
        given: Mapping[str, Given | None] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.parts = list(parts)  # one for each scenario, in the order given
        self.failures = dict(failures)  # what went wrong, for each policy that has failed
        self.remarks = list(remarks)  # what a reader should know, such as what could not be made, and why
        self._given = given  # the policies as they were given, by name

    @property
    def records(self) -> pl.DataFrame:
        """Of the policies that have finished: a row for each scenario, policy, seed and recorded round."""
        return self._stacked(lambda part: part.records)

    def table(self) -> pl.DataFrame:
        """Columns scenario, policy, quantity, mean, low, high: means over seeds after all rounds, and 95 % intervals.

        Quantities such as ``runtime/ofta`` are ratios on the same seeds, geometric means. ``regret`` is that of the
        proxy loss, ``cost_regret`` that of the expected cost; see ``cost_regret.REGRETS``. ValueError if no policy has
        finished.
        """
        return self._stacked(_summary)

    def compare(self, policy: GivenPolicy, other: GivenPolicy) -> Comparison:
        """How much a policy needs beside another one, on the same seeds.

        Each is named as it was played, without its module, or by the class or object that was given. ValueError if it
        has not finished, or several are meant.
        """
        parts = self._finished()
        samples = [_samples(part) for part in parts]
        counts = what_counts(samples[0])
        everywhere = _everywhere(samples, counts)
        mine, theirs = (name_among(one, [*everywhere], self._given) for one in (policy, other))
        pairs = {
            quantity: ([one[quantity][mine] for one in samples], [one[quantity][theirs] for one in samples])
            for quantity in dict.fromkeys([counts, *samples[0]])
        }
        ratios = {quantity: Estimate.of_ratios(*pair) for quantity, pair in pairs.items()}
        words = [more_or_less(ratio, NOUNS.get(quantity, quantity)) for quantity, ratio in ratios.items()]
        tied = frozenset((mine, theirs)) not in different_in_ratio(everywhere)
        among = tie_among(ratios[counts], len(everywhere))
        where = f" on {plural(len(parts), 'scenario')}" if len(parts) > 1 else ""
        needs = ", ".join(word for word in words if word) or "nothing that can be compared"
        said = f" By {NOUNS.get(counts, counts)} the two are tied{among}." if tied else ""
        wins = statistics.paired_wins(*pairs[counts])
        seeds = parts[0].experiment.seeds
        between = "" if seeds == 1 else f" ({100 * wins.low:.0f} to {100 * wins.high:.0f} %)"
        sentence = (
            f"{mine} beside {theirs}{where}: {needs}.{said} It costs less in {100 * wins.mean:.0f} % of the paired "
            f"runs{between}. {in_brackets(seeds, tied)}"
        )
        return Comparison(sentence, ratios[counts], wins, tied)

    def profile(self) -> pl.DataFrame:
        """The performance profile over all scenarios and seeds: see ``statistics.performance_profile``."""
        samples = [_samples(part) for part in self._finished()]
        counts = what_counts(samples[0])
        everywhere = _everywhere(samples, counts)
        return statistics.performance_profile({name: [one[counts][name] for one in samples] for name in everywhere})

    def plot(self, what: str = "round_time") -> style.Picture:
        """A picture with a panel for each scenario, with 95 % bands, or of the performance profile over all.

        ``what`` is round_time, worker_time, runtime, round_worker_time, regret, cost_regret, profile, or, where a loss
        curve was given, loss, against both clocks. ValueError for another one, if no policy has finished, or if none
        has the quantity.
        """
        if what == "loss":
            rows = [(_losses(part), "loss", f"loss: {part.experiment.scenario.name}") for part in self._finished()]
            with style.figure(9.5, 0.6 + 3.0 * len(rows)) as picture:
                losses.draw_rows(picture, rows)
            return picture
        if what == "profile":
            return self._picture_of_profile()
        if what not in CURVES:
            raise unknown("picture", what, [*CURVES, "loss", "profile"])
        parts = [part for part in self._finished() if known(part.records, CURVES[what].quantity)]
        if not parts:
            raise ValueError(f"no policy has a {what} here, which only allocations have, on workers that do not change")
        with style.figure(4.0 * len(parts) + 2.5, 3.8) as picture:
            panels = picture.subplots(1, len(parts), squeeze=False)[0]
            for axes, part in zip(panels, parts, strict=True):
                panel(axes, part.records, CURVES[what])
                if len(parts) > 1:
                    axes.set_title(f"{part.experiment.scenario.name}: {CURVES[what].title}")
            legend(picture, panels[0])
        return picture

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write the page of all scenarios, one HTML file that needs no network; return its path.

        ValueError if no policy has finished, MissingExtraError if Jinja2 or PyYAML is not installed, OSError if the
        file cannot be written.
        """
        target = Path(path)
        check_place(target)
        pages = {}
        for part in self._finished():
            page = experiment_page(part.note, part.records, part.tasks)
            pages[part.experiment.scenario.name] = page._replace(origin=part.origin)
        return render.write(joined(pages), target)

    def _stacked(self, of: Callable[[Part], pl.DataFrame]) -> pl.DataFrame:
        names = {part.experiment.scenario.name: of(part) for part in self._finished()}
        return pl.concat(frame.select(pl.lit(name).alias("scenario"), pl.all()) for name, frame in names.items())

    def _finished(self) -> list[Part]:
        finished = [part for part in self.parts if len(part.records)]
        if not finished:
            why = "; ".join(f"{name}: {described(error)}" for name, error in self.failures.items())
            raise ValueError(f"no policy has finished, so there is nothing to show ({why})")
        return finished

    def _picture_of_profile(self) -> style.Picture:
        frame = self.profile()
        policies = frame["policy"].unique(maintain_order=True).to_list()
        counts = NOUNS.get(what_counts(_samples(self._finished()[0])), "cost")
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy, line in style.lines(policies).items():
                mine = frame.filter(policy=policy)
                axes.step(mine["ratio"], mine["share"], where="post", label=policy, **line)
                if mine["low"].is_not_null().all():
                    band = {"color": line["color"], "alpha": 0.2, "linewidth": 0, "step": "post"}
                    axes.fill_between(mine["ratio"], mine["low"], mine["high"], **band)
            axes.set(xscale="log", ylim=(0, 1.02), xlabel=f"{counts} / least {counts} of the same run")
            axes.set_title("share of the runs within this ratio")
            legend(picture, axes)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        return picture

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_given": {}}  # classes of a notebook cannot be pickled

    def __repr__(self) -> str:
        about = ", ".join(part.experiment.about for part in self.parts)
        policies = dict.fromkeys(one["name"] for part in self.parts for one in part.note["policies"])
        failed = f", failed: {', '.join(self.failures)}" if self.failures else ""
        return f"Results({about}; {', '.join(policies)}{failed})"

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(name)} failed: {escape(described(error))}</p>" for name, error in self.failures.items()]
        parts += [f"<p>{escape(remark)}</p>" for remark in self.remarks]
        for part in self.parts:
            if len(part.records):
                parts.append(html(summary_tables(_summary(part), part.experiment)))
                found = findings(part.records, part.experiment, competitors(part.note))
                parts.append(f"<p>{escape(found)}</p>".replace("\n", "<br>"))
        return "".join(parts)


def _summary(part: Part) -> pl.DataFrame:
    return summarise(part.records, part.experiment.scenario.price)


def _losses(part: Part) -> pl.DataFrame:
    if "loss_curve" not in part.note:
        raise ValueError("no loss curve was given, so no loss is known: bench.run(..., loss_curve=...) takes one")
    return losses.on_clocks(pl.DataFrame(part.note["loss_curve"]), part.records)


def _everywhere(samples: Sequence[Samples], quantity: str) -> dict[str, Floats]:
    """A quantity of the policies that finished in all scenarios, (seeds,) each: geometric means over scenarios."""
    names = [name for name in samples[0][quantity] if all(name in one[quantity] for one in samples)]
    with np.errstate(divide="ignore"):  # recorded times may be 0
        return {name: np.exp(np.mean([np.log(one[quantity][name]) for one in samples], axis=0)) for name in names}


def _samples(part: Part) -> dict[str, dict[str, Floats]]:
    return ends(part.records, part.experiment.scenario.price)
