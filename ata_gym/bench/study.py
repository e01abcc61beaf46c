"""A study of one experiment from beginning to end: policies play it, and a report is left in their folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import USUAL, Effort, play_all
from ata_gym.bench.experiment.run import PolicyRun
from ata_gym.bench.experiment.store import Folder, open_folder
from ata_gym.bench.page.note import about_experiment, write_note
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report, report


class Study(NamedTuple):
    """What is recorded of policies, and what is shown of the records."""

    name: str = "bench"  # of the command whose page it has
    run_of: type[PolicyRun] = PolicyRun
    report: Callable[[Any, list[str], Folder], Report] = report
    """Called with the experiment, the policies that have finished, and their folder."""
    about: Callable[[Any, Sequence[str]], Mapping[str, Any]] = about_experiment
    """What its page needs to know of an experiment and its policies."""


class Studied(NamedTuple):
    """What a study leaves."""

    folder: Folder
    report: Report | None  # None where no policy has finished
    failures: dict[str, Exception]  # what went wrong, for each policy that failed


def run(
    study: Study,
    experiment: Experiment,
    policies: Sequence[str],
    out: Path,
    effort: Effort = USUAL,
    command: Sequence[str] = (),
) -> Studied:
    """Play what has not finished yet, with a progress bar for each policy, and report on those that have.

    ``command`` are the words of the command that its page shows.

    Raises
    ------
    ValueError
        For an unknown policy, one that fails in its first round, or a folder of another configuration.
    """

    def begin(folder: Path) -> None:
        write_note(folder, study.name, command, study.about(experiment, policies))

    folder, failures = play(experiment, policies, out, effort, study.run_of, begin)
    finished = [policy for policy in policies if policy not in failures]
    return Studied(folder, study.report(experiment, finished, folder) if finished else None, failures)


def play(
    experiment: Experiment,
    policies: Sequence[str],
    out: Path,
    effort: Effort = USUAL,
    run_of: type[PolicyRun] = PolicyRun,
    begin: Callable[[Path], object] = lambda _: None,
) -> tuple[Folder, dict[str, Exception]]:
    """Play what has not finished yet, with a progress bar for each policy; ``begin`` is called when the folder is open.

    Returns the results folder, and what went wrong for each policy that failed. ValueError as of ``run``.
    """
    for policy in policies:
        experiment.try_out(policy)
    folder = open_folder(out, experiment.config())
    begin(folder.path)
    with progress_bars(dict.fromkeys(policies, experiment.rounds)) as update:
        return folder, play_all(experiment, policies, folder, run_of, effort, update)
