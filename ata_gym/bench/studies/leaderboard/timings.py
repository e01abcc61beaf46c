"""What decisions cost: the processor time of each policy of a leaderboard, kept apart.

Figures of a clock differ from run to run, and results are the same bytes each time. So they have
files of their own, which the manifest does not list.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ata_gym.bench import decision_cost
from ata_gym.bench.experiment import plural
from ata_gym.bench.report.page.sections import Column, Tables, TableView
from ata_gym.bench.report.table import LEFT, Cell, Table, right
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store.folder import read_json, write_json
from ata_gym.bench.store.provenance import provenance
from ata_gym.scenarios import Scenario
from ata_gym.utils.errors import explained
from ata_gym.utils.files.json_files import fields, text
from ata_gym.utils.files.sealed import DamagedError
from ata_gym.utils.validation import non_negative, whole_number

NAME = "timings.json"
"""The name of the file in the folder of a leaderboard."""

MARKDOWN = "timings.md"
"""The name of the file of the table."""

_BAR = "decision times"
"""The name of the progress bar."""

_READ = (
    "the mean, and in brackets the longest; n workers, B results in a round; each decision is timed"
    " twice, and the shorter time counts; a decision of dispatch is one completion"
)
"""What the figures of the table are."""

Kept = dict[str, dict[str, Any]]
"""What was measured, by policy; see ``_MEASURED``."""

_TIMES = fields(
    {"mean": non_negative, "worst": non_negative, "failure": text},
    may_lack=["mean", "worst", "failure"],
)
"""The rule of the milliseconds of a decision in one scenario, or of the reason of a failure."""

_MEASURED = fields(
    {
        "rounds": whole_number,
        "machine": text,
        "code": fields({}, other_fields=text),
        "times": fields({}, other_fields=_TIMES),
    },
)
"""The rule of what was measured of one policy: in how many rounds, where, by what code."""

_RULE = fields({}, other_fields=_MEASURED)


class Timings(NamedTuple):
    """The figures that a folder keeps."""

    kept: Kept
    remark: str = ""
    """Why they cannot be read; empty where they can, or where there are none."""


def read(folder: Path) -> Timings:
    """Read what was measured; a damaged file counts as none, with a remark."""
    path = folder / NAME
    if not path.exists():
        return Timings({})
    try:
        return Timings(read_json(path, _RULE))
    except DamagedError as error:
        return Timings({}, str(error))


def measure(folder: Path, policies: Sequence[str]) -> None:
    """Time the decisions of policies, and keep the figures of each as soon as they are there.

    What the same code has measured before is not measured again. Where a policy fails, the reason
    is kept.

    Args:
        folder: The folder of the leaderboard.
        policies: The names of the policies.
    """
    kept = read(folder).kept
    with progress_bars({_BAR: len(policies)}) as show:
        for done, name in enumerate(policies):
            show(_BAR, done, name)
            made_by = provenance(name, decision_cost.__name__)
            if kept.get(name, {}).get("code") != made_by["code"]:
                kept[name] = {
                    "rounds": decision_cost.FIRST_ROUNDS,
                    "machine": made_by["machine"],
                    "code": made_by["code"],
                    "times": {
                        title: _times(name, scenario)
                        for title, scenario in decision_cost.timed_scenarios().items()
                    },
                }
                write_json(folder / NAME, kept)
        show(_BAR, len(policies))


def _times(name: str, scenario: Scenario) -> dict[str, Any]:
    """Return the milliseconds of a policy's decisions in a scenario, or why there are none."""
    try:
        return decision_cost.decision_times(name, scenario, decision_cost.FIRST_ROUNDS)._asdict()
    except (Exception, SystemExit) as error:
        # A policy of the user's may raise anything.
        return {"failure": explained(error)}


def tables(kept: Kept, policies: Sequence[str]) -> list[Table]:
    """Return a table of milliseconds for each machine and number of rounds.

    Args:
        kept: What was measured.
        policies: The policies, in the order of the rows.
    """
    result = []
    for where, view in _views(kept, policies).items():
        title = f"milliseconds of processor time of a decision {where}\n{_READ}"
        columns = {"policy": LEFT, **right(column.title for column in view.columns[1:])}
        rows = [[cell.text for cell in row] for row in view.rows]
        result.append(Table(title, columns, rows))
    return result


def section(kept: Kept, policies: Sequence[str]) -> list[Tables]:
    """Return the section of the page; none where nothing was measured."""
    views = _views(kept, policies)
    if not views:
        return []
    note = f"Milliseconds of processor time of a decision {'; '.join(views)}: {_READ}."
    if len(views) == 1:
        shown = [*views.values()]
    else:
        shown = [view._replace(choice={"measured": where}) for where, view in views.items()]
    return [Tables("timings", "What a decision costs", note, shown)]


def remarks(kept: Kept, policies: Sequence[str]) -> list[str]:
    """Return a sentence for each policy that could not be timed somewhere, with the reasons."""
    sentences = []
    for name in policies:
        titles: dict[str, list[str]] = {}
        for title, times in kept.get(name, {"times": {}})["times"].items():
            if "failure" in times:
                titles.setdefault(times["failure"], []).append(title)
        sentences += [
            f"Decisions of {name} were not timed for {'; '.join(failed)}: {reason}."
            for reason, failed in titles.items()
        ]
    return sentences


def _views(kept: Kept, policies: Sequence[str]) -> dict[str, TableView]:
    """Return a table for each machine and number of rounds, by a phrase that names both."""
    names_by_place: dict[str, list[str]] = {}
    for name in policies:
        if name in kept:
            rounds = plural(kept[name]["rounds"], "round")
            place = f"in the first {rounds} of one row, on {kept[name]['machine']}"
            names_by_place.setdefault(place, []).append(name)
    views = {}
    for place, names in names_by_place.items():
        titles: dict[str, None] = {}
        for name in names:
            titles |= dict.fromkeys(kept[name]["times"])
        rows = []
        for name in names:
            times = kept[name]["times"]
            rows.append([Cell(name), *(_cell(times.get(title, {})) for title in titles)])
        # In two lines, so that a terminal has room for all.
        headings = [title.replace(", ", ",\n") for title in titles]
        columns = [Column("policy", False), *map(Column, headings)]
        views[place] = TableView(columns, rows)
    return views


def _cell(times: Mapping[str, Any]) -> Cell:
    """Return the cell of the times in one scenario."""
    if "mean" not in times:
        return Cell("-")
    return Cell(f"{times['mean']:.3g} ({times['worst']:.3g})", times["mean"])
