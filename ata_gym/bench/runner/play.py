"""A study of one experiment: policies play it, and a report is left in their folder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.report import Report, report
from ata_gym.bench.runner.jobs import USUAL, Effort, Failures, play_jobs
from ata_gym.bench.runner.policy_run import Job, PolicyRun
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store.folder import Folder, open_folder
from ata_gym.bench.store.note import about_experiment, write_note


class Studied(NamedTuple):
    """What a study leaves."""

    folder: Folder
    report: Report | None
    """None where no policy has finished."""
    failures: dict[str, Exception]
    """What went wrong, for each policy that failed."""


def run(
    experiment: Experiment,
    policies: Sequence[str],
    out: Path,
    effort: Effort = USUAL,
    report: Callable[[Any, list[str], Folder], Report | None] = report,
    run_of: type[PolicyRun] = PolicyRun,
    command: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Studied:
    """Play the policies that have not finished yet, and report on all that have.

    Args:
        experiment: What is played.
        policies: The names of the policies.
        out: The folder of the study.
        effort: How the work is done.
        report: A function that gets the experiment, the policies that have finished, and their
            folder, and gives the report.
        run_of: The class that says what is recorded of a policy.
        command: The words that the folder's page shows as its command; without them no page can be
            made.
        more: What the page needs to know besides.

    Raises:
        ValueError: For an unknown policy, one that fails in its first round, or a folder of another
            configuration.
    """
    for policy in policies:
        experiment.try_out(policy)
    folder = open_folder(out, experiment.config())
    if command:
        note = {**about_experiment(experiment, policies), **(more or {})}
        write_note(folder.path, "bench", command, note)
    jobs = [Job(experiment, policy, folder, run_of) for policy in dict.fromkeys(policies)]
    failures = play_with_bars(jobs, effort)
    failed = {job.policy: error for job, error in failures.items()}
    finished = [policy for policy in policies if policy not in failed]
    if not finished:
        return Studied(folder, None, failed)
    return Studied(folder, report(experiment, finished, folder), failed)


def play_with_bars(
    jobs: Sequence[Job],
    effort: Effort = USUAL,
    bar_of: Callable[[Job], str] = lambda job: job.policy,
) -> Failures:
    """Play jobs; all jobs with the same ``bar_of`` share a progress bar, which counts rounds."""
    totals = Counter[str]()
    done = Counter[str]()
    rounds_played = Counter[Job]()
    for job in jobs:
        totals[bar_of(job)] += job.experiment.rounds
    with progress_bars(totals) as show:

        def progress(job: Job, rounds: int) -> None:
            bar = bar_of(job)
            done[bar] += rounds - rounds_played[job]
            rounds_played[job] = rounds
            if done[bar]:
                more = ""
            else:
                more = "not begun, or compiling"
            show(bar, done[bar], more)

        return play_jobs(jobs, effort, progress)
