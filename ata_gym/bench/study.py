"""A study of one experiment from beginning to end: policies play it, and a report is left in their folder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import USUAL, Effort, Failures, play_jobs
from ata_gym.bench.experiment.run import Job, PolicyRun
from ata_gym.bench.experiment.store import Folder, open_folder
from ata_gym.bench.page.note import about_experiment, write_note
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report, report


class Studied(NamedTuple):
    """What a study leaves."""

    folder: Folder
    report: Report | None  # None where no policy has finished
    failures: dict[str, Exception]  # what went wrong, for each policy that failed


def run(
    experiment: Experiment, policies: Sequence[str], out: Path, effort: Effort = USUAL,
    report: Callable[[Any, list[str], Folder], Report | None] = report, run_of: type[PolicyRun] = PolicyRun,
    command: Sequence[str] = (), more: Mapping[str, Any] | None = None,
) -> Studied:  # fmt: skip
    """Play what has not finished yet, and report on what has; a page shows the words of the ``command``, and ``more``.

    ``report`` is called with the experiment, the policies that have finished, and their folder; ``run_of`` is what is
    recorded of them. ValueError for an unknown policy, one that fails in its first round, or a folder of another
    configuration.
    """
    for policy in policies:
        experiment.try_out(policy)
    folder = open_folder(out, experiment.config())
    if command:
        write_note(folder.path, "bench", command, {**about_experiment(experiment, policies), **(more or {})})
    failures = play_with_bars([Job(experiment, policy, folder, run_of) for policy in dict.fromkeys(policies)], effort)
    failed = {job.policy: error for job, error in failures.items()}
    finished = [policy for policy in policies if policy not in failed]
    return Studied(folder, report(experiment, finished, folder) if finished else None, failed)


def play_with_bars(
    jobs: Sequence[Job], effort: Effort = USUAL, bar_of: Callable[[Job], str] = lambda job: job.policy
) -> Failures:
    """Play jobs with a progress bar for those that have the same ``bar_of``."""
    totals, done, played = Counter[str](), Counter[str](), Counter[Job]()
    for job in jobs:
        totals[bar_of(job)] += job.experiment.rounds
    with progress_bars(totals) as show:

        def progress(job: Job, rounds: int) -> None:
            bar = bar_of(job)
            done[bar] += rounds - played[job]
            played[job] = rounds
            show(bar, done[bar], "" if done[bar] else "not begun, or compiling")

        return play_jobs(jobs, effort, progress)
