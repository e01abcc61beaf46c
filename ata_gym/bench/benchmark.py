"""Policies are played on scenarios and compared: what the command ``bench`` does, for notebooks and scripts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import polars as pl

from ata_gym.bench.cost_regret import CostRun, least_cost, with_cost_regret
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import Effort, Failures, Runner, on_this_machine, play_jobs
from ata_gym.bench.experiment.run import Job
from ata_gym.bench.experiment.store import Folder, open_folder, withdraw_if_empty
from ata_gym.bench.given import Policies, by_name
from ata_gym.bench.page.experiment_page import origin, read_tasks
from ata_gym.bench.page.live import Live
from ata_gym.bench.page.note import Note, about_experiment, write_note
from ata_gym.bench.page.render import NAME
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import report
from ata_gym.bench.results import Part, Results
from ata_gym.scenarios import Scenario
from ata_gym.utils.errors import described
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.manifest import write_listed
from ata_gym.utils.validation import whole_number
from ata_policies import registry
from ata_policies.registry import Given

LIVE_EVERY = 5.0  # seconds between checkpoints of a run whose page is followed, at most


class PolicyFailedWarning(UserWarning):
    """A policy has failed while it was played; the others have their results."""


def run(
    policies: Policies,
    scenario: str | Scenario | Sequence[str | Scenario],
    *,
    rounds: int | None = None,
    seeds: int = 8,
    seed: int = 0,
    budget: int | None = None,
    price: float | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    live: bool = False,
    command: Sequence[str] = (),
) -> Results:
    """Play policies on a scenario, or on several ones, and compare them on the same luck.

    Each policy plays the same task times: seed e of one is seed e of every other one. Results depend neither on
    ``jobs`` nor on ``runner``.

    Parameters
    ----------
    policies
        Names (as ``ata_policies.make`` takes them), classes, or policies that are made already, which keep their own
        seed: one, or a list of them; or a mapping from names of your own to classes and objects. Objects, and classes
        that no module holds, as those of a notebook, are played in this process; all others in processes of their own.
    scenario
        A name, a ``Scenario``, or a list of them.
    rounds, budget, price
        By default those of each scenario: its horizon, its B, and what one unit of worker time costs in units of
        runtime.
    seeds, seed
        The number of episodes, and the first seed; neighbouring seeds follow.
    out
        A folder that keeps tables, pictures, records and a page; each of several scenarios has a folder in it. Killed
        or called again, the same call goes on where it was, and policies that have finished are not played again.
        Without it nothing is left on the disk.
    jobs
        How many policies are played at once, each in a process; 1 plays them all in this process. By default as many as
        there are processors.
    save_every
        Seconds between checkpoints.
    rerun_changed
        Whether to play anew what was played by other code, which is refused otherwise.
    runner
        Where policies are played: by default on this machine.
    live
        Whether to write the page every few seconds while the policies are played; this needs ``out``.
    command
        The words by which the page says how to repeat this; by default this call.

    Returns
    -------
    The results of the policies that have finished. There is a PolicyFailedWarning for each that failed.

    Raises
    ------
    ValueError
        If there is no such policy or scenario, a number is out of its range, a policy fails in its first round, the
        folder holds other results, or ``out`` is given for a policy whose source cannot be had.

    Examples
    --------
    >>> from ata_gym import bench
    >>> results = bench.run(["uta", "ofta"], "five-workers", rounds=50, seeds=4, jobs=1)
    >>> print(results.compare("ofta", "uta").sentence.partition(",")[0])
    ofta beside uta: 54 % less runtime (51 to 56 %)
    >>> results.table().filter(policy="ofta", quantity="regret")["mean"].item()
    0.0
    """
    given = by_name(policies)
    scenarios = [scenario] if isinstance(scenario, str | Scenario) else list(scenario)
    size = {"rounds": rounds, "budget": budget, "seeds": seeds, "seed": seed, "price": price}
    experiments: list[Experiment] = [Experiment.on_scenario(one, **size) for one in scenarios]  # type: ignore[arg-type]
    _check(experiments, given, out, jobs, live)
    words = command or _call(given, scenarios, size)
    own = {name: policy for name, policy in given.items() if policy is not None}
    effort = Effort(jobs, min(save_every, LIVE_EVERY) if live else save_every, rerun_changed, runner)
    with registry.given(own), ExitStack() as stack:
        for experiment in experiments:
            for name in given:
                experiment.try_out(name)
        place = Path(stack.enter_context(TemporaryDirectory()) if out is None else out)
        folders = (
            [place / quote(one.scenario.name, safe="") for one in experiments] if len(experiments) > 1 else [place]
        )
        studies = [_Played(*each, given, words, live) for each in zip(experiments, folders, strict=True)]
        return _play(studies, own, effort, keep=out is not None)


class _Played:
    """An experiment that is played, and its folder."""

    def __init__(
        self, experiment: Experiment, path: Path, policies: Mapping[str, Given | None], words: Sequence[str], live: bool
    ) -> None:
        self.experiment, self.policies = experiment, list(policies)
        self.sources = {name: policy.source for name, policy in policies.items() if policy and policy.source}
        self.folder = open_folder(path, experiment.config())
        note = about_experiment(experiment, policies)
        compared = any(one["env"] == "TaskAllocation" for one in note["policies"])
        note["least_cost"] = least_cost(experiment) if compared else None
        self.note: Note = {"command": list(words), **note}
        write_note(path, "bench", words, note)
        self.follow: Callable[[str, int], object] = lambda _policy, _rounds: None
        if live:
            self.follow = Live(experiment, self.folder, self.note).update

    def jobs(self, which: Callable[[str], bool]) -> list[Job]:
        """The jobs of the policies for which ``which`` is true."""
        return [Job(self.experiment, name, self.folder, CostRun) for name in self.policies if which(name)]

    def part(self, failed: set[str]) -> Part:
        """What the policies that have finished did."""
        done = [name for name in self.policies if name not in failed]
        if not done:
            return Part(self.experiment, pl.DataFrame(schema=CostRun.schema), {}, self.note, ())
        for name in self.sources.keys() & {*done}:
            _write_source(self.folder.source(name), self.sources[name])
        records = with_cost_regret(self.folder.results(done), self.note["least_cost"])
        tasks = read_tasks(self.folder, done)
        return Part(self.experiment, records, tasks, self.note, origin([self.folder.result(name) for name in done]))


def _check(
    experiments: Sequence[Experiment],
    given: Mapping[str, Given | None],
    out: str | os.PathLike[str] | None,
    jobs: int | None,
    live: bool,
) -> None:
    """Raise ValueError for what cannot be played together, or cannot be kept."""
    if not experiments:
        raise ValueError("name at least one scenario")
    names = [experiment.scenario.name for experiment in experiments]
    if len(experiments) > 1 and (len({*names}) < len(names) or not all(names)):
        raise ValueError("several scenarios need names, each another one: Scenario(..., name=...)")
    if jobs is not None:
        whole_number("jobs", jobs)
    if live and out is None:
        raise ValueError("live=True writes a page into the folder of the results: give out=...")
    without = [name for name, policy in given.items() if policy is not None and policy.source is None]
    if out is not None and without:
        raise ValueError(
            f"results in a folder are kept with the source of each policy, and that of {', '.join(without)} cannot be "
            "had: write the class into a file, or leave out=... away"
        )


def _play(studies: Sequence[_Played], own: Mapping[str, Given], effort: Effort, *, keep: bool) -> Results:
    """Play all that has not finished, and gather the results."""
    names = studies[0].policies
    of = {study.folder.path: study for study in studies}
    done: dict[Job, int] = {}
    with progress_bars(dict.fromkeys(names, sum(study.experiment.rounds for study in studies))) as show:

        def progress(job: Job, rounds: int) -> None:
            done[job] = rounds
            show(job.policy, sum(played for one, played in done.items() if one.policy == job.policy))
            of[job.folder.path].follow(job.policy, rounds)

        failures: Failures = {}
        for which, how in (
            (lambda name: name not in own, effort),
            (lambda name: name in own, effort._replace(jobs=1, runner=on_this_machine)),
        ):
            todo = [job for study in studies for job in study.jobs(which)]
            failures |= play_jobs(todo, how, progress) if todo else {}
    remarks = []
    parts = []
    for study in studies:
        part = study.part({job.policy for job in failures if job.folder is study.folder})
        if part.records.is_empty():
            withdraw_if_empty(study.folder)
        elif keep:
            part, said = _left(part, study.folder)
            remarks += said
        parts.append(part)
    for job, error in failures.items():
        warnings.warn(f"{job.policy} failed: {described(error)}", PolicyFailedWarning, stacklevel=3)
    return Results(parts, {job.policy: error for job, error in failures.items()}, remarks)


def _left(part: Part, folder: Folder) -> tuple[Part, list[str]]:
    """Write tables, pictures and the page into a folder; return the part with its report, and why one is missing."""
    made = report(part.experiment, part.records["policy"].unique(maintain_order=True).to_list(), folder)
    try:
        page = Results([part], {}).report(folder.path / NAME)
    except MissingExtraError as error:
        return part._replace(report=made), [str(error)]
    return part._replace(report=made._replace(files=[*made.files, page])), []


def _write_source(path: Path, source: str) -> None:
    path.parent.mkdir(exist_ok=True)
    write_listed(path, lambda part: part.write_text(source, "utf-8"))


def _call(given: Mapping[str, Any], scenarios: Sequence[str | Scenario], size: Mapping[str, Any]) -> list[str]:
    """The words of a shell that repeat a call, where its policies and scenarios have names."""
    names = [one if isinstance(one, str) else one.name for one in scenarios]
    options = "".join(f", {name}={value}" for name, value in size.items() if value is not None)
    return ["python", "-c", f"from ata_gym import bench; bench.run({list(given)}, {names}{options}, out='results/run')"]
