"""A study, and the one way in which every study is played, kept and reported."""

import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from ata_gym.bench.report.report import LeftFiles, Report, leave
from ata_gym.bench.runner.jobs import (
    USUAL,
    Effort,
    NotStartedError,
    Outcomes,
    Progress,
    Runner,
    leave_to_parent,
    on_this_machine,
    play_jobs,
)
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.runner.results import Failure, Results
from ata_gym.bench.store.claim import claim
from ata_gym.bench.store.folder import Folder, withdraw_if_empty
from ata_gym.bench.store.note import NothingFinishedError, refuse_other_study
from ata_gym.utils.errors import described
from ata_gym.utils.files.manifest import write_listed
from ata_gym.utils.validation import whole_number
from ata_policies import registry
from ata_policies.registry import RegisteredPolicy


class PolicyFailedWarning(UserWarning):
    """A policy has failed while it was played, or its seeds are not independent.

    The others have their results.
    """


@dataclass(frozen=True)
class Study(ABC):
    """Experiments with a question of their own.

    ``play`` plays a study: it calls ``check``, ``begin``, ``run`` and ``doubts``, in this order,
    and shows what ``report`` makes of the folder.
    """

    name: ClassVar[str]
    """The name of the study in the note of its folder."""

    policies: Mapping[str, RegisteredPolicy | None]
    """The policies by the names under which they play; None for one found by its name."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be played, before a folder is touched.

        Raises:
            ValueError: If a policy cannot play, or something else does not fit.
        """

    @abstractmethod
    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        """Open a folder, leave the note for the page in it, and return what is to be played.

        Args:
            folder: The folder of the results.
            command: The words of the command that the page shows.

        Raises:
            ValueError: If the folder holds something else.
        """

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        """Play what has not finished yet, with progress bars, or go on after a kill.

        Args:
            folder: The folder of the results, which ``begin`` has opened.
            jobs: What ``begin`` returned.
            effort: How the work is done.

        Returns:
            What went wrong, by the name of what failed.
        """
        del folder
        failures = play_with_bars(jobs, effort, self)
        return {
            self.label(job): Failure(error, job.folder.failure(job.policy))
            for job, error in failures.items()
        }

    def doubts(self, folder: Path) -> list[str]:
        """Return sentences on what makes results doubtful, and add them to the note of the folder.

        Args:
            folder: The folder of the results, after ``run``.
        """
        del folder
        return []

    @staticmethod
    @abstractmethod
    def report(folder: Path) -> Report:
        """Make the report on what has finished in a folder of this study.

        Raises:
            DamagedError: If the note or a result is damaged.
            NothingFinishedError: If nothing has finished.
        """

    def label(self, job: Job) -> str:
        """Return the name of a job in messages."""
        return job.policy

    def bar(self, job: Job) -> str:
        """Return the name of a job's progress bar, which several jobs may share."""
        return job.policy

    def leave(self, report: Report, folder: Path) -> LeftFiles:
        """Leave the report in a folder."""
        return leave(report, folder)


def play(
    study: Study,
    out: str | os.PathLike[str] | None = None,
    effort: Effort = USUAL,
    command: Sequence[str] = (),
) -> Results:
    """Play a study, or go on with it after a kill, and leave its report in a folder.

    There is a PolicyFailedWarning for each policy that failed, and for each doubt of the study.

    Args:
        study: What is played.
        out: The folder that keeps the results; without it nothing is left on the disk.
        effort: How the work is done; results do not depend on it.
        command: The words by which the page says how to repeat this.

    Raises:
        ValueError: If something cannot be played, the folder holds other results, or ``out`` is
            given for a policy whose source cannot be had.
        NotStartedError: If no worker process begins.
    """
    leave_to_parent()
    local_policies = {name: policy for name, policy in study.policies.items() if policy is not None}
    if effort.jobs is not None:
        whole_number("jobs", effort.jobs)
    sourceless = [name for name, policy in local_policies.items() if policy.source is None]
    if out is not None and sourceless:
        raise ValueError(
            "results in a folder are kept with the source of each policy, and the source of"
            f" {', '.join(sourceless)} cannot be had: write the class into a file, or leave out=..."
            " away",
        )
    effort = effort._replace(runner=_local_here(local_policies, effort.runner))
    with registry.registered(local_policies), ExitStack() as stack:
        study.check()
        if out is None:
            folder = Path(stack.enter_context(TemporaryDirectory()))
        elif os.fspath(out):
            folder = Path(out)
        else:
            raise ValueError("the results need a folder, and its name is empty")
        # The folder is held as long as this name refers to the claim.
        claimed = claim(folder)
        refuse_other_study(folder, study.name)
        jobs = study.begin(folder, command)
        try:
            failures = study.run(folder, jobs, effort)
        except NotStartedError as unguarded:
            # The sentence stands above the traceback with which the script ends.
            print(unguarded, file=sys.stderr)
            raise
        for job in jobs:
            if job.folder.finished(job.policy):
                keep_source(job.folder, job.policy)
        # A folder in which all failed takes a corrected call, also beside others that have results.
        for opened in {job.folder.path: job.folder for job in jobs}.values():
            withdraw_if_empty(opened)
        doubts = study.doubts(folder)
        left = LeftFiles()
        try:
            report = study.report(folder)
        except NothingFinishedError:
            report = None
        if report is not None and out is not None:
            left = study.leave(report, folder)
        del claimed
    failed = [f"{label} failed: {described(error)}" for label, (error, _) in failures.items()]
    for sentence in (*failed, *doubts):
        warnings.warn(sentence, PolicyFailedWarning, stacklevel=3)
    return Results(report, failures, left, study.policies)


def _local_here(local_policies: Collection[str], runner: Runner) -> Runner:
    """A runner that plays ``local_policies`` in this process, which alone has them."""

    def run_jobs(
        todo: list[Job],
        processes: int | None,
        save_every: float,
        progress: Progress,
    ) -> Outcomes:
        local_jobs = [job for job in todo if registry.parse(job.policy)[0] in local_policies]
        other_jobs = [job for job in todo if job not in local_jobs]
        if other_jobs:
            yield from runner(other_jobs, processes, save_every, progress)
        yield from on_this_machine(local_jobs, 1, save_every, progress)

    return run_jobs


def keep_source(folder: Folder, policy: str) -> None:
    """Keep the source of a policy with its results, if it was given as a class or an object."""
    source = registry.registered_source(policy)
    if source is not None:
        path = folder.source(policy)
        path.parent.mkdir(exist_ok=True)
        write_listed(path, partial(Path.write_text, data=source, encoding="utf-8"))


def play_with_bars(jobs: Sequence[Job], effort: Effort, study: Study) -> dict[Job, Exception]:
    """Play jobs; all jobs of one bar of the study share a progress bar, which counts rounds."""
    totals = Counter[str]()
    done = Counter[str]()
    rounds_played = Counter[Job]()
    for job in jobs:
        totals[study.bar(job)] += job.experiment.rounds
    with progress_bars(totals) as show:

        def progress(job: Job, rounds: int) -> None:
            bar = study.bar(job)
            done[bar] += rounds - rounds_played[job]
            rounds_played[job] = rounds
            if done[bar]:
                more = ""
            else:
                more = "not begun, or compiling"
            show(bar, done[bar], more)

        return play_jobs(jobs, effort, progress)
