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

from ata_gym.bench.experiment import Experiment, plural
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
from ata_gym.bench.report.page import render
from ata_gym.bench.report.page.experiment_page import experiment_page
from ata_gym.bench.report.page.sections import joined
from ata_gym.bench.report.report import CURVES, Report, findings, known, legend, panel
from ata_gym.bench.report.statistics import Estimate, ends, summarise
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import html
from ata_gym.bench.runner.policies import GivenPolicy, name_among
from ata_gym.bench.store.note import Note, competitors
from ata_gym.typing import Floats
from ata_gym.utils.atomic import check_place
from ata_gym.utils.errors import described
from ata_gym.utils.validation import unknown
from ata_policies.registry import Given


class Comparison(NamedTuple):
    """One policy beside another one, on the same seeds."""

    sentence: str
    """The comparison in words."""
    ratio: Estimate
    """The ratio of the costs: the geometric mean over scenarios and seeds.

    Without a price it is the ratio of the runtimes.
    """
    wins: Estimate
    """The share of paired runs in which the policy costs less than the other one.

    The runs of a pair have the same seed and scenario.
    """
    tied: bool
    """Whether nothing follows, since the two do not differ clearly among all that were played."""

    def __repr__(self) -> str:
        return self.sentence


class Part(NamedTuple):
    """What policies did on one scenario."""

    experiment: Experiment
    records: pl.DataFrame
    """The records of ``cost_regret.CostRun`` for finished policies, and the column cost_regret."""
    tasks: Mapping[str, tuple[list[int], Floats]]
    """For each policy the recorded rounds, and the tasks of each group of workers in them."""
    note: Note
    """What the page needs to know."""
    origin: Sequence[tuple[str, str]]
    """Versions, commit and machine."""
    report: Report | None = None
    """What was left in the folder of the results; None where there is no folder."""


class Results:
    """What :func:`ata_gym.bench.run` has found out; a notebook shows it as tables."""

    def __init__(
        self,
        parts: Sequence[Part],
        failures: Mapping[str, Exception],
        remarks: Sequence[str] = (),
        given: Mapping[str, Given | None] = MappingProxyType({}),
    ) -> None:
        self.parts = list(parts)
        """One for each scenario, in the order in which they were given."""
        self.failures = dict(failures)
        """What went wrong, for each policy that has failed."""
        self.remarks = list(remarks)
        """What a reader should know, such as what could not be made, and why."""
        self._given = given
        """The policies as they were given, by name."""

    @property
    def records(self) -> pl.DataFrame:
        """A row for each scenario, finished policy, seed and recorded round."""
        return self._stacked(lambda part: part.records)

    def table(self) -> pl.DataFrame:
        """Means over seeds after all rounds, and their 95 % intervals.

        The columns are scenario, policy, quantity, mean, low, high. Quantities such as
        ``runtime/ofta`` are ratios on the same seeds, geometric means. ``regret`` is the regret of
        the proxy loss, and ``cost_regret`` the regret of the expected cost; see
        ``cost_regret.REGRETS``.

        Raises:
            ValueError: If no policy has finished.
        """
        return self._stacked(_summary)

    def compare(self, policy: GivenPolicy, other: GivenPolicy) -> Comparison:
        """How much a policy needs beside another one, on the same seeds.

        Each is named as it was played, without its module, or by the class or object that was
        given.

        Raises:
            ValueError: If one of them has not finished, or several are meant.
        """
        parts = self._finished()
        samples = [_samples(part) for part in parts]
        main_quantity = what_counts(samples[0])
        means_by_policy = _everywhere(samples, main_quantity)
        policy_name, other_name = (
            name_among(given, [*means_by_policy], self._given) for given in (policy, other)
        )
        # per quantity, the values of both: an array of seeds for each scenario
        pairs = {
            quantity: (
                [scenario_samples[quantity][policy_name] for scenario_samples in samples],
                [scenario_samples[quantity][other_name] for scenario_samples in samples],
            )
            for quantity in dict.fromkeys([main_quantity, *samples[0]])
        }
        ratios = {quantity: Estimate.of_ratios(*pair) for quantity, pair in pairs.items()}
        clauses = [
            more_or_less(ratio, NOUNS.get(quantity, quantity)) for quantity, ratio in ratios.items()
        ]
        tied = frozenset((policy_name, other_name)) not in different_in_ratio(means_by_policy)
        among_text = tie_among(ratios[main_quantity], len(means_by_policy))
        if len(parts) > 1:
            scope = f" on {plural(len(parts), 'scenario')}"
        else:
            scope = ""
        needs = ", ".join(clause for clause in clauses if clause) or "nothing that can be compared"
        if tied:
            tie_sentence = (
                f" By {NOUNS.get(main_quantity, main_quantity)} the two are tied{among_text}."
            )
        else:
            tie_sentence = ""
        wins = statistics.paired_wins(*pairs[main_quantity])
        seeds = parts[0].experiment.seeds
        if seeds == 1:
            interval = ""
        else:
            interval = f" ({100 * wins.low:.0f} to {100 * wins.high:.0f} %)"
        sentence = (
            f"{policy_name} beside {other_name}{scope}: {needs}.{tie_sentence} It costs less in"
            f" {100 * wins.mean:.0f} % of the paired runs{interval}. {in_brackets(seeds, tied)}"
        )
        return Comparison(sentence, ratios[main_quantity], wins, tied)

    def profile(self) -> pl.DataFrame:
        """The performance profile over all scenarios and seeds.

        See ``statistics.performance_profile``.

        Raises:
            ValueError: If no policy has finished.
        """
        samples = [_samples(part) for part in self._finished()]
        main_quantity = what_counts(samples[0])
        means_by_policy = _everywhere(samples, main_quantity)
        return statistics.performance_profile(
            {
                name: [scenario_samples[main_quantity][name] for scenario_samples in samples]
                for name in means_by_policy
            },
        )

    def plot(self, what: str = "round_time") -> style.Picture:
        """A picture of a quantity, with a panel for each scenario and 95 % bands.

        Args:
            what: round_time, worker_time, runtime, round_worker_time, regret or cost_regret;
                profile, the performance profile over all scenarios; or, where a loss curve was
                given, loss, against both clocks.

        Raises:
            ValueError: For another quantity, if no policy has finished, or if none has the
                quantity.
        """
        if what == "loss":
            rows = [
                (_losses(part), "loss", f"loss: {part.experiment.scenario.name}")
                for part in self._finished()
            ]
            with style.figure(9.5, 0.6 + 3.0 * len(rows)) as picture:
                losses.draw_rows(picture, rows)
            return picture
        if what == "profile":
            return self._picture_of_profile()
        if what not in CURVES:
            raise unknown("picture", what, [*CURVES, "loss", "profile"])
        parts = [part for part in self._finished() if known(part.records, CURVES[what].quantity)]
        if not parts:
            raise ValueError(
                f"no policy has a {what} here, which only allocations have, on workers that do not"
                " change",
            )
        with style.figure(4.0 * len(parts) + 2.5, 3.8) as picture:
            panels = picture.subplots(1, len(parts), squeeze=False)[0]
            for axes, part in zip(panels, parts, strict=True):
                panel(axes, part.records, CURVES[what])
                if len(parts) > 1:
                    axes.set_title(f"{part.experiment.scenario.name}: {CURVES[what].title}")
            legend(picture, panels[0])
        return picture

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write the page of all scenarios, one HTML file that needs no network; give its path.

        Raises:
            ValueError: If no policy has finished.
            MissingExtraError: If Jinja2 or PyYAML is not installed.
            OSError: If the file cannot be written.
        """
        target = Path(path)
        check_place(target)
        pages = {}
        for part in self._finished():
            page = experiment_page(part.note, part.records, part.tasks)
            pages[part.experiment.scenario.name] = page._replace(origin=part.origin)
        return render.write(joined(pages), target)

    def _stacked(self, table_of: Callable[[Part], pl.DataFrame]) -> pl.DataFrame:
        """A table of each part, all in one, with the column scenario before the others."""
        tables = {part.experiment.scenario.name: table_of(part) for part in self._finished()}
        return pl.concat(
            frame.select(pl.lit(name).alias("scenario"), pl.all()) for name, frame in tables.items()
        )

    def _finished(self) -> list[Part]:
        finished = [part for part in self.parts if len(part.records)]
        if not finished:
            reasons = "; ".join(
                f"{name}: {described(error)}" for name, error in self.failures.items()
            )
            raise ValueError(f"no policy has finished, so there is nothing to show ({reasons})")
        return finished

    def _picture_of_profile(self) -> style.Picture:
        frame = self.profile()
        policies = frame["policy"].unique(maintain_order=True).to_list()
        noun = NOUNS.get(what_counts(_samples(self._finished()[0])), "cost")
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy, line in style.lines(policies).items():
                rows = frame.filter(policy=policy)
                axes.step(rows["ratio"], rows["share"], where="post", label=policy, **line)
                if rows["low"].is_not_null().all():
                    band = {"color": line["color"], "alpha": 0.2, "linewidth": 0, "step": "post"}
                    axes.fill_between(rows["ratio"], rows["low"], rows["high"], **band)
            axes.set(
                xscale="log",
                ylim=(0, 1.02),
                xlabel=f"{noun} / least {noun} of the same run",
            )
            axes.set_title("share of the runs within this ratio")
            legend(picture, axes)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        return picture

    def __getstate__(self) -> dict[str, Any]:
        # classes of a notebook cannot be pickled
        return {**vars(self), "_given": {}}

    def __repr__(self) -> str:
        about = ", ".join(part.experiment.about for part in self.parts)
        policies = dict.fromkeys(
            entry["name"] for part in self.parts for entry in part.note["policies"]
        )
        if self.failures:
            failed = f", failed: {', '.join(self.failures)}"
        else:
            failed = ""
        return f"Results({about}; {', '.join(policies)}{failed})"

    def _repr_html_(self) -> str:
        parts = [
            f"<p>{escape(name)} failed: {escape(described(error))}</p>"
            for name, error in self.failures.items()
        ]
        parts += [f"<p>{escape(remark)}</p>" for remark in self.remarks]
        for part in self.parts:
            if len(part.records):
                parts.append(html(summary_tables(_summary(part), part.experiment)))
                text = findings(part.records, part.experiment, competitors(part.note))
                parts.append(f"<p>{escape(text)}</p>".replace("\n", "<br>"))
        return "".join(parts)


def _summary(part: Part) -> pl.DataFrame:
    return summarise(part.records, part.experiment.scenario.price)


def _losses(part: Part) -> pl.DataFrame:
    if "loss_curve" not in part.note:
        raise ValueError(
            "no loss curve was given, so no loss is known: bench.run(..., loss_curve=...)"
            " takes one",
        )
    return losses.on_clocks(pl.DataFrame(part.note["loss_curve"]), part.records)


def _everywhere(samples: Sequence[Samples], quantity: str) -> dict[str, Floats]:
    """Geometric means over scenarios of a quantity, (seeds,) for each policy finished in all."""
    names = [
        name
        for name in samples[0][quantity]
        if all(name in scenario_samples[quantity] for scenario_samples in samples)
    ]
    # recorded times may be 0
    with np.errstate(divide="ignore"):
        return {
            name: np.exp(
                np.mean(
                    [np.log(scenario_samples[quantity][name]) for scenario_samples in samples],
                    axis=0,
                )
            )
            for name in names
        }


def _samples(part: Part) -> dict[str, dict[str, Floats]]:
    return ends(part.records, part.experiment.scenario.price)
