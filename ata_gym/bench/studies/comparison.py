"""Policies are played on scenarios and compared, as by the command ``bench``.

This is its interface for notebooks and scripts.
"""

import os
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import losses
from ata_gym.bench.report.page.experiment_page import origin, read_tasks
from ata_gym.bench.report.page.render import NAME
from ata_gym.bench.report.quantities import with_cost_regret
from ata_gym.bench.report.report import report_on
from ata_gym.bench.runner.cost_regret import (
    CostRun,
    best_allocation,
    gap_in_words,
    has_expected_costs,
)
from ata_gym.bench.runner.jobs import (
    Effort,
    NotStartedError,
    Outcomes,
    Progress,
    Runner,
    leave_to_parent,
    on_this_machine,
)
from ata_gym.bench.runner.play import play_with_bars
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Part, Results
from ata_gym.bench.store.claim import claim
from ata_gym.bench.store.folder import Folder, open_folder, withdraw_if_empty
from ata_gym.bench.store.note import Note, about_experiment, competitors, write_note
from ata_gym.scenarios import Scenario
from ata_gym.utils.atomic import file_name
from ata_gym.utils.errors import described
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.manifest import write_listed
from ata_gym.utils.validation import whole_number
from ata_policies import registry
from ata_policies.registry import Given


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
    loss_curve: losses.GivenCurve | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:
    """Play policies on a scenario, or on several ones, and compare them on the same luck.

    Each policy plays the same task times: seed e of one is seed e of every other one. Results
    depend neither on ``jobs`` nor on ``runner``. There is a PolicyFailedWarning for each policy
    that failed.

    Args:
        policies: Names (as ``ata_policies.make`` takes them), classes, or policies that are made
            already, which keep their own seed: one, a list of them, or a mapping from names of your
            own to classes and objects. Objects, and classes that no module holds, such as classes
            of a notebook, are played in this process; all others in processes of their own.
        scenario: A scenario or its name, or several ones, each of which has another name.
        rounds: The number of rounds in an episode, by default the horizon of each scenario.
        seeds: The number of episodes.
        seed: The first seed; neighbouring seeds follow.
        budget: The number B of results in a round, by default the budget of each scenario.
        price: What one unit of worker time costs in units of runtime, by default the price of each
            scenario.
        loss_curve: The loss of a training with B gradients a round: a CSV file, or columns,
            ``round`` and ``loss``, as for ``losses.loss_curve``. It is the same for all policies,
            where all workers draw from the same data; the report and ``Results.plot("loss")`` lay
            it over the clocks. By default there is none.
        out: A folder that keeps tables, pictures, records and a page; each of several scenarios has
            a folder in it. Killed or called again, the same call goes on where it was. Without it
            nothing is left on the disk.
        jobs: The number of policies that are played at once, each in a process, by default as many
            as processors; 1: in this process.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to play anew what was played by other code, which is refused
            otherwise.
        runner: Where policies are played: by default on this machine.
        command: The words by which the page says how to repeat this; by default this call.

    Raises:
        ValueError: If there is no such policy or scenario, a number is out of its range, a policy
            fails in its first round, the folder holds other results, or ``out`` is given for a
            policy whose source cannot be had.

    Example:
        >>> from ata_gym import bench
        >>> results = bench.run(["uta", "ofta"], "five-workers", rounds=50, seeds=4, jobs=1)
        >>> print(results.compare("ofta", "uta").sentence.partition(",")[0])
        ofta beside uta: 54 % less runtime (51 to 56 %)
        >>> results.table().filter(policy="ofta", quantity="regret")["mean"].item()
        0.0
    """
    policies_by_name = by_name(policies)
    if isinstance(scenario, str | Scenario):
        scenarios = [scenario]
    else:
        scenarios = list(scenario)
    size: dict[str, Any] = {
        "rounds": rounds,
        "budget": budget,
        "seeds": seeds,
        "seed": seed,
        "price": price,
    }
    experiments = [Experiment.on_scenario(setting, **size) for setting in scenarios]
    names = [experiment.scenario.name for experiment in experiments]
    if not names:
        raise ValueError("name at least one scenario")
    if len(names) > 1 and (len({*names}) < len(names) or not all(names)):
        raise ValueError("several scenarios need names, each another one: Scenario(..., name=...)")
    if isinstance(loss_curve, str | os.PathLike):
        curve_name = repr(str(loss_curve))
    else:
        curve_name = None
    page_command = command or _call(policies_by_name, scenarios, {**size, "loss_curve": curve_name})
    # one scenario has the folder of the results to itself
    if len(names) > 1:
        folders = [file_name(name) for name in names]
    else:
        folders = [""]
    plans = [
        Plan(experiment, [*policies_by_name], folder)
        for experiment, folder in zip(experiments, folders, strict=True)
    ]
    effort = Effort(jobs, save_every, rerun_changed, runner)
    played = play_plans(plans, policies_by_name, effort, out, page_command, loss_curve)
    failures = {name: error for results in played for name, error in results.failures.items()}
    remarks = list(dict.fromkeys(remark for results in played for remark in results.remarks))
    return Results([results.parts[0] for results in played], failures, remarks, policies_by_name)


class Plan(NamedTuple):
    """An experiment that is played together with others."""

    experiment: Experiment
    policies: list[str]
    """The names under which its policies play."""
    folder: str = ""
    """The name of its folder in the folder of the results; empty: that folder itself."""


def play_plans(
    plans: Sequence[Plan],
    given: Mapping[str, Given | None],
    effort: Effort,
    out: str | os.PathLike[str] | None = None,
    words: Sequence[str] = (),
    loss_curve: losses.GivenCurve | None = None,
) -> list[Results]:
    """Play several experiments at once, and leave the folder of each, as ``run`` does.

    There is a PolicyFailedWarning for each policy that failed.

    Args:
        plans: The experiments; a policy in them is one of ``given``, with or without
            hyperparameters behind its name.
        given: The policies as ``by_name`` gives them.
        effort: How the work is done.
        out: The folder of the results; without it nothing is left on the disk.
        words: The words by which a page says how to repeat this.
        loss_curve: The loss of a training, as for ``run``.

    Returns:
        The results of each plan.

    Raises:
        ValueError: Where ``run`` raises one.
    """
    leave_to_parent()
    local_policies = {name: policy for name, policy in given.items() if policy is not None}
    if effort.jobs is not None:
        whole_number("jobs", effort.jobs)
    sourceless = [name for name, policy in local_policies.items() if policy.source is None]
    if out is not None and sourceless:
        raise ValueError(
            "results in a folder are kept with the source of each policy, and that of"
            f" {', '.join(sourceless)} cannot be had: write the class into a file, or leave out=..."
            " away",
        )
    effort = effort._replace(runner=_own_here(local_policies, effort.runner))
    with registry.given(local_policies), ExitStack() as stack:
        notes = []
        for experiment, policies, _ in plans:
            for name in policies:
                experiment.try_out(name)
            notes.append(about_experiment(experiment, policies))
            if loss_curve is not None:
                curve = losses.loss_curve(loss_curve, experiment.record_at())
                notes[-1]["loss_curve"] = curve.to_dict(as_series=False)
        place: str | os.PathLike[str]
        if out is None:
            place = stack.enter_context(TemporaryDirectory())
        else:
            place = out
        # a claim on a folder of folders is held as long as this name refers to it
        if any(plan.folder for plan in plans):
            _claim = claim(Path(place))
        else:
            _claim = None
        studies = [
            _begin(plan, place, note, words) for plan, note in zip(plans, notes, strict=True)
        ]
        try:
            failures = play_with_bars([job for study in studies for job in study.jobs], effort)
        except NotStartedError as unguarded:
            # the sentence stands above the traceback with which the script ends
            print(unguarded, file=sys.stderr)
            raise
        played = []
        for study in studies:
            failed = {job.policy: failures[job] for job in study.jobs if job in failures}
            remarks: list[str] = [*study.note["remarks"]]
            part = _part(study, [job.policy for job in study.jobs if job not in failures])
            if len(failed) == len(study.jobs):
                withdraw_if_empty(study.folder)
            elif out is not None:
                part = _leave_report(part, study.folder.path, remarks)
            played.append(Results([part], failed, remarks, given))
    for job, error in failures.items():
        warnings.warn(f"{job.policy} failed: {described(error)}", PolicyFailedWarning, stacklevel=3)
    return played


class _Study(NamedTuple):
    experiment: Experiment
    folder: Folder
    note: Note
    """What its page needs to know."""
    jobs: list[Job]


def _own_here(local_policies: Collection[str], runner: Runner) -> Runner:
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


def _begin(plan: Plan, place: str | os.PathLike[str], note: Note, command: Sequence[str]) -> _Study:
    experiment, policies, name = plan
    path: str | os.PathLike[str]
    if name:
        path = Path(place, name)
    else:
        # as it was given, since an empty text is refused and Path("") is the folder "."
        path = place
    folder = open_folder(path, experiment.config())
    has_allocations = any(entry["env"] == "TaskAllocation" for entry in note["policies"])
    if has_allocations:
        best = best_allocation(experiment.scenario)
    else:
        best = None
    if best is None:
        note["least_cost"] = None
    else:
        note["least_cost"] = best.cost
    if best is not None and has_expected_costs(experiment):
        note["remarks"] += gap_in_words(best)
    jobs = [Job(experiment, policy, folder, CostRun) for policy in policies]
    return _Study(experiment, folder, write_note(folder.path, "bench", command, note), jobs)


def _part(study: _Study, finished: list[str]) -> Part:
    """What the finished policies did; the source of each that was given here is kept beside it."""
    experiment, folder, note, _ = study
    if not finished:
        return Part(experiment, pl.DataFrame(schema=CostRun.schema), {}, note, ())
    for name in finished:
        path = folder.source(name)
        source = registry.source_given(name)
        if source is not None:
            path.parent.mkdir(exist_ok=True)
            write_listed(path, partial(Path.write_text, data=source, encoding="utf-8"))
    records = with_cost_regret(folder.results(finished), note["least_cost"])
    return Part(
        experiment,
        records,
        read_tasks(folder, finished),
        note,
        origin([folder.result(name) for name in finished]),
    )


def _leave_report(part: Part, folder: Path, remarks: list[str]) -> Part:
    """Leave the report, and the page where its packages are installed, in a folder."""
    report = report_on(
        part.records,
        part.experiment,
        competitors(part.note),
        folder,
        part.note.get("loss_curve"),
    )
    try:
        report = report._replace(files=[*report.files, Results([part], {}).report(folder / NAME)])
    except MissingExtraError as error:
        remarks.append(str(error))
    return part._replace(report=report)


def _call(
    policies: Mapping[str, Any],
    scenarios: Sequence[str | Scenario],
    size: Mapping[str, Any],
) -> list[str]:
    """The words of a command that repeats a call of ``run``."""
    names = [scenario if isinstance(scenario, str) else scenario.name for scenario in scenarios]
    options = "".join(f", {name}={value}" for name, value in size.items() if value is not None)
    return [
        "python",
        "-c",
        f"from ata_gym import bench; bench.run({[*policies]}, {names}{options}, out='results/run')",
    ]
