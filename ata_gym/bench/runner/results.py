"""What a study gives: tables, comparisons, pictures and a page, in a notebook and a terminal."""

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.ticker import PercentFormatter

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import statistics, style
from ata_gym.bench.report.headline import (
    Samples,
    different_in_ratio,
    in_brackets,
    more_or_less,
    tie_among,
    what_counts,
)
from ata_gym.bench.report.page import render
from ata_gym.bench.report.pictures import legend
from ata_gym.bench.report.quantities import noun
from ata_gym.bench.report.report import LOG_PART, LeftFiles, Report
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.table import html, latex
from ata_gym.bench.runner.policies import PolicyLike, name_among
from ata_gym.typing import Floats
from ata_gym.utils.errors import described
from ata_gym.utils.files.atomic import check_place
from ata_gym.utils.validation import unknown
from ata_policies.registry import RegisteredPolicy


class Failure(NamedTuple):
    """What went wrong with a part of a study."""

    error: Exception
    traceback: Path | None = None
    """The file with the traceback; None where there is none."""


class Comparison(NamedTuple):
    """One policy compared with another one, on the same seeds."""

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


class Results:
    """What a study has found out; a notebook shows it as tables."""

    def __init__(
        self,
        report: Report | None,
        failures: Mapping[str, Failure] = MappingProxyType({}),
        left: LeftFiles | None = None,
        policies: Mapping[str, RegisteredPolicy | None] = MappingProxyType({}),
    ) -> None:
        self._report = report
        self.failures = dict(failures)
        """What went wrong, for each policy, or other part of the study, that has failed."""
        left = left or LeftFiles()
        self.files = list(left.tables)
        """The tables and the page in the folder of the results."""
        self.pictures = list(left.pictures)
        """The pictures in the folder of the results."""
        self.remarks: list[str] = []
        """What a reader should know, such as what could not be made, and why."""
        if report:
            self.remarks += report.remarks
        if left.remark:
            self.remarks.append(left.remark)
        self._policies = policies

    @property
    def content(self) -> Report:
        """All that is shown of these results.

        Raises:
            ValueError: If nothing has finished.
        """
        if self._report is None:
            reasons = "; ".join(
                f"{name}: {described(failure.error)}" for name, failure in self.failures.items()
            )
            raise ValueError(f"no policy has finished, so there is nothing to show ({reasons})")
        return self._report

    @property
    def finished(self) -> bool:
        """Whether there is something to show."""
        return self._report is not None

    @property
    def records(self) -> pl.DataFrame:
        """A row for each scenario, finished policy, seed and recorded round."""
        return self.content.records

    def table(self) -> pl.DataFrame:
        """The figures of the tables with all digits: means over seeds, and 95 % intervals.

        The study decides on the columns, among them policy, quantity, mean, low and high.
        Quantities such as ``runtime/ofta`` are ratios on the same seeds, geometric means.
        ``regret`` is the regret of the proxy loss, and ``cost_regret`` the regret of the expected
        cost; see ``quantities.REGRETS``.

        Raises:
            ValueError: If nothing has finished.
        """
        return self.content.summary

    def compare(self, policy: PolicyLike, other: PolicyLike) -> Comparison:
        """Say how much a policy needs compared with another one, on the same seeds.

        Each is named as it was played, without its module, or by the class or object that was
        given.

        Raises:
            ValueError: If one of them has not finished, or several are meant.
        """
        samples = [*self.content.samples.values()]
        main_quantity = what_counts(samples[0])
        means_by_policy = _everywhere(samples, main_quantity)
        policy_name, other_name = (
            name_among(asked, [*means_by_policy], self._policies) for asked in (policy, other)
        )
        # per quantity, the values of both: an array of seeds for each scenario
        pairs = {}
        for quantity in dict.fromkeys([main_quantity, *samples[0]]):
            values = [scenario_samples[quantity][policy_name] for scenario_samples in samples]
            other_values = [scenario_samples[quantity][other_name] for scenario_samples in samples]
            pairs[quantity] = (values, other_values)
        # parts of a log follow each other in time
        successive = self.content.paired_by == LOG_PART
        ratios = {
            quantity: Estimate.from_ratios(*pair, successive) for quantity, pair in pairs.items()
        }
        clauses = [more_or_less(ratio, noun(quantity)) for quantity, ratio in ratios.items()]
        tied = frozenset((policy_name, other_name)) not in different_in_ratio(
            means_by_policy, successive
        )
        among_text = tie_among(ratios[main_quantity], len(means_by_policy))
        if len(samples) > 1:
            scope = f" on {plural(len(samples), self.content.case)}"
        else:
            scope = ""
        needs = ", ".join(clause for clause in clauses if clause) or "nothing that can be compared"
        if tied:
            tie_sentence = f" By {noun(main_quantity)} the two are tied{among_text}."
        else:
            tie_sentence = ""
        wins = statistics.paired_wins(*pairs[main_quantity], successive)
        seeds = len(pairs[main_quantity][0][0])
        if seeds == 1:
            interval = ""
        else:
            interval = f" ({100 * wins.low:.0f} to {100 * wins.high:.0f} %)"
        brackets = in_brackets(seeds, tied, self.content.paired_by)
        sentence = (
            f"{policy_name} compared with {other_name}{scope}: {needs}.{tie_sentence} It costs less"
            f" in {100 * wins.mean:.0f} % of the paired runs{interval}. {brackets}"
        )
        return Comparison(sentence, ratios[main_quantity], wins, tied)

    def profile(self) -> pl.DataFrame:
        """Return the performance profile over all scenarios and seeds.

        See ``statistics.performance_profile``.

        Raises:
            ValueError: If nothing has finished.
        """
        samples = [*self.content.samples.values()]
        main_quantity = what_counts(samples[0])
        means_by_policy = _everywhere(samples, main_quantity)
        return statistics.performance_profile(
            {
                name: [scenario_samples[main_quantity][name] for scenario_samples in samples]
                for name in means_by_policy
            },
        )

    def latex(self) -> str:
        """Return the tables as LaTeX, each a ``tabular`` with the rules of booktabs.

        Raises:
            ValueError: If nothing has finished.
            MissingExtraError: If tabulate is not installed.
        """
        return latex(self.content.tables)

    def plot(self, picture: str | None = None, *, paper: bool = False) -> style.Picture:
        """Draw a picture, with 95 % bands, and a row for each scenario.

        Args:
            picture: The name of one of the study's pictures, which are the names of the files in
                its folder, such as runtime, worker_time or regret; or ``profile``, the performance
                profile over all scenarios. By default the first one, and without one the profile.
            paper: Whether it is for a paper: in the width of a column, 3.25 inches, or of two, with
                letters of 7 to 8 points; ``plot(...).savefig("NAME.pdf")`` has the fonts in it.

        Raises:
            ValueError: If the study has no such picture, or nothing has finished.
        """
        pictures = self.content.pictures
        if picture is None:
            picture = next(iter(pictures), "profile")
        if picture != "profile" and picture not in pictures:
            raise unknown("picture here", picture, [*pictures, "profile"])
        draw = pictures.get(picture, self._draw_profile)
        with style.for_paper() if paper else nullcontext():
            return draw()

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write the page, one HTML file that needs no network, and return its path.

        Raises:
            ValueError: If nothing has finished.
            MissingExtraError: If Jinja2 or PyYAML is not installed.
            OSError: If the file cannot be written.
        """
        target = Path(path)
        check_place(target)
        return render.write(self.content.page(), target)

    def _draw_profile(self) -> style.Picture:
        frame = self.profile()
        policies = frame["policy"].unique(maintain_order=True).to_list()
        # Also of policies that have not finished, which have their colours on the page.
        looks = style.lines([*(line.name for line in self.content.page().series), *policies])
        samples = next(iter(self.content.samples.values()))
        quantity = noun(what_counts(samples))
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy in policies:
                line = looks[policy]
                rows = frame.filter(policy=policy)
                axes.step(rows["ratio"], rows["share"], where="post", label=policy, **line)
                if rows["low"].is_not_null().all():
                    band = {"color": line["color"], "alpha": 0.2, "linewidth": 0, "step": "post"}
                    axes.fill_between(rows["ratio"], rows["low"], rows["high"], **band)
            axes.set(
                xscale="log",
                ylim=(0, 1.02),
                xlabel=f"{quantity} / least {quantity} of the same run",
            )
            axes.set_title("share of the runs within this ratio")
            legend(picture, axes)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        return picture

    def __getstate__(self) -> dict[str, Any]:
        # classes of a notebook cannot be pickled
        return {**vars(self), "_policies": {}}

    def __repr__(self) -> str:
        if self.failures:
            failed = f"; failed: {', '.join(self.failures)}"
        else:
            failed = ""
        if self._report is None:
            return f"Results(nothing has finished{failed})"
        samples = next(iter(self._report.samples.values()))
        policies = ", ".join(next(iter(samples.values())))
        return f"Results({self._report.title}; {policies}{failed})"

    def _repr_html_(self) -> str:
        parts = [
            f"<p>{escape(name)} failed: {escape(described(failure.error))}</p>"
            for name, failure in self.failures.items()
        ]
        parts += [f"<p>{escape(remark)}</p>" for remark in self.remarks]
        if self._report is not None:
            parts.append(html(self._report.tables))
            parts.append(f"<p>{escape(self._report.findings)}</p>".replace("\n", "<br>"))
            if self._report.beside:
                picture = b64encode(self.plot(self._report.beside)._repr_png_()).decode()
                name = escape(self._report.beside, quote=True)
                parts.append(f'<img src="data:image/png;base64,{picture}" alt="{name}">')
        return "".join(parts)


def _everywhere(samples: Sequence[Samples], quantity: str) -> dict[str, Floats]:
    """Geometric means over scenarios of a quantity, (seeds,) for each policy finished in all."""
    names = [
        name
        for name in samples[0][quantity]
        if all(name in scenario_samples[quantity] for scenario_samples in samples)
    ]
    means = {}
    for name in names:
        # recorded times may be 0
        with np.errstate(divide="ignore"):
            logs = [np.log(scenario_samples[quantity][name]) for scenario_samples in samples]
        means[name] = np.exp(np.mean(logs, axis=0))
    return means
