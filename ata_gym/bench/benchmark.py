"""Policies are played on scenarios and compared: what the command ``bench`` does, for notebooks and scripts."""

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

from ata_gym.bench.cost_regret import CostRun, best_allocation, gap_in_words, has_expected_costs, with_cost_regret
from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import (
    Effort,
    NotStartedError,
    Outcomes,
    Progress,
    Runner,
    leave_to_parent,
    on_this_machine,
)
from ata_gym.bench.experiment.run import Job
from ata_gym.bench.experiment.store import Folder, open_folder, withdraw_if_empty
from ata_gym.bench.given import Policies, by_name
from ata_gym.bench.page.experiment_page import origin, read_tasks
from ata_gym.bench.page.note import Note, about_experiment, competitors, write_note
from ata_gym.bench.page.render import NAME
from ata_gym.bench.report import losses
from ata_gym.bench.report.report import report_on
from ata_gym.bench.results import Part, Results
from ata_gym.bench.study import play_with_bars
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
    policies: Policies, scenario: str | Scenario | Sequence[str | Scenario], *, rounds: int | None = None,
    seeds: int = 8, seed: int = 0, budget: int | None = None, price: float | None = None,
    loss_curve: losses.GivenCurve | None = None, out: str | os.PathLike[str] | None = None, jobs: int | None = None,
    save_every: float = 10.0, rerun_changed: bool = False, runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:  # fmt: skip
    """Play policies on a scenario, or on several ones, and compare them on the same luck.

    Each policy plays the same task times: seed e of one is seed e of every other one. Results depend neither on
    ``jobs`` nor on ``runner``. There is a PolicyFailedWarning for each policy that failed.

    - ``policies``: names (as ``ata_policies.make`` takes them), classes, or policies that are made already, which keep
      their own seed: one, a list of them, or a mapping from names of your own to classes and objects. Objects, and
      classes that no module holds, as those of a notebook, are played in this process; all others in processes of
      their own.
    - ``rounds``, ``budget``, ``price``: by default those of each scenario; the price is what one unit of worker time
      costs in units of runtime.
    - ``loss_curve``: the loss of a training with B gradients a round: a CSV file, or columns, ``round`` and ``loss``,
      as for ``losses.loss_curve``. It is the same for all policies, where all workers draw from the same data; the
      report and ``Results.plot("loss")`` lay it over the clocks. By default there is none.
    - ``seeds``, ``seed``: the number of episodes, and the first seed; neighbouring seeds follow.
    - ``out``: a folder that keeps tables, pictures, records and a page; each of several scenarios has a folder in it.
      Killed or called again, the same call goes on where it was. Without it nothing is left on the disk.
    - ``jobs``: how many policies are played at once, each in a process, by default as many as processors; 1: in this
      process.
    - ``save_every``: seconds between checkpoints.
    - ``rerun_changed``: whether to play anew what was played by other code, which is refused otherwise.
    - ``runner``: where policies are played: by default on this machine.
    - ``command``: the words by which the page says how to repeat this; by default this call.

    ValueError if there is no such policy or scenario, a number is out of its range, a policy fails in its first round,
    the folder holds other results, or ``out`` is given for a policy whose source cannot be had.

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
    names = [one.scenario.name for one in experiments]
    if not names:
        raise ValueError("name at least one scenario")
    if len(names) > 1 and (len({*names}) < len(names) or not all(names)):
        raise ValueError("several scenarios need names, each another one: Scenario(..., name=...)")
    named = repr(str(loss_curve)) if isinstance(loss_curve, str | os.PathLike) else None
    words = command or _call(given, scenarios, {**size, "loss_curve": named})
    folders = [file_name(name) for name in names] if len(names) > 1 else [""]
    plans = [Plan(one, [*given], folder) for one, folder in zip(experiments, folders, strict=True)]
    played = play_plans(plans, given, Effort(jobs, save_every, rerun_changed, runner), out, words, loss_curve)
    failures = {name: error for one in played for name, error in one.failures.items()}
    remarks = list(dict.fromkeys(remark for one in played for remark in one.remarks))
    return Results([one.parts[0] for one in played], failures, remarks, given)


class Plan(NamedTuple):
    """An experiment that is played together with others, the policies of it, and its folder in that of the results."""

    experiment: Experiment
    policies: list[str]
    folder: str = ""


def play_plans(
    plans: Sequence[Plan], given: Mapping[str, Given | None], effort: Effort,
    out: str | os.PathLike[str] | None = None, words: Sequence[str] = (), loss_curve: losses.GivenCurve | None = None,
) -> list[Results]:  # fmt: skip
    """Play several experiments at once, and leave the folder of each, as ``run`` does; the results of each.

    The names of a plan are those ``given``, which hyperparameters may follow. ValueError and warnings are those of
    ``run``.
    """
    leave_to_parent()
    own = {name: policy for name, policy in given.items() if policy is not None}
    if effort.jobs is not None:
        whole_number("jobs", effort.jobs)
    without = [name for name, policy in own.items() if policy.source is None]
    if out is not None and without:
        raise ValueError(
            f"results in a folder are kept with the source of each policy, and that of {', '.join(without)} cannot be "
            "had: write the class into a file, or leave out=... away"
        )
    effort = effort._replace(runner=_own_here(own, effort.runner))
    with registry.given(own), ExitStack() as stack:
        notes = []
        for experiment, policies, _ in plans:
            for name in policies:
                experiment.try_out(name)
            notes.append(about_experiment(experiment, policies))
            if loss_curve is not None:
                curve = losses.loss_curve(loss_curve, experiment.record_at())
                notes[-1]["loss_curve"] = curve.to_dict(as_series=False)
        place = stack.enter_context(TemporaryDirectory()) if out is None else out
        _claim = claim(Path(place)) if any(plan.folder for plan in plans) else None
        studies = [_begin(plan, place, note, words) for plan, note in zip(plans, notes, strict=True)]
        try:
            failures = play_with_bars([job for study in studies for job in study.jobs], effort)
        except NotStartedError as unguarded:
            print(unguarded, file=sys.stderr)  # above the traceback with which the script ends
            raise
        played = []
        for study in studies:
            failed, remarks = {job.policy: failures[job] for job in study.jobs if job in failures}, list[str]()
            remarks += study.note["remarks"]
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
    note: Note  # what its page needs to know
    jobs: list[Job]


def _own_here(own: Collection[str], runner: Runner) -> Runner:
    def run_jobs(todo: list[Job], processes: int | None, save_every: float, progress: Progress) -> Outcomes:
        here = [job for job in todo if registry.parse(job.policy)[0] in own]
        others = [job for job in todo if job not in here]
        if others:
            yield from runner(others, processes, save_every, progress)
        yield from on_this_machine(here, 1, save_every, progress)

    return run_jobs


def _begin(plan: Plan, place: str | os.PathLike[str], note: Note, words: Sequence[str]) -> _Study:
    experiment, policies, name = plan
    folder = open_folder(Path(place, name) if name else place, experiment.config())
    compared = any(one["env"] == "TaskAllocation" for one in note["policies"])
    best = best_allocation(experiment.scenario) if compared else None
    note["least_cost"] = None if best is None else best.cost
    if best is not None and has_expected_costs(experiment):
        note["remarks"] += gap_in_words(best)
    jobs = [Job(experiment, policy, folder, CostRun) for policy in policies]
    return _Study(experiment, folder, write_note(folder.path, "bench", words, note), jobs)


def _part(study: _Study, done: list[str]) -> Part:
    experiment, folder, note, _ = study
    if not done:
        return Part(experiment, pl.DataFrame(schema=CostRun.schema), {}, note, ())
    for name in done:
        path, source = folder.source(name), registry.source_given(name)
        if source is not None:
            path.parent.mkdir(exist_ok=True)
            write_listed(path, partial(Path.write_text, data=source, encoding="utf-8"))
    records = with_cost_regret(folder.results(done), note["least_cost"])
    return Part(experiment, records, read_tasks(folder, done), note, origin([folder.result(name) for name in done]))


def _leave_report(part: Part, folder: Path, remarks: list[str]) -> Part:
    made = report_on(part.records, part.experiment, competitors(part.note), folder, part.note.get("loss_curve"))
    try:
        made = made._replace(files=[*made.files, Results([part], {}).report(folder / NAME)])
    except MissingExtraError as error:
        remarks.append(str(error))
    return part._replace(report=made)


def _call(given: Mapping[str, Any], scenarios: Sequence[str | Scenario], size: Mapping[str, Any]) -> list[str]:
    names = [one if isinstance(one, str) else one.name for one in scenarios]
    options = "".join(f", {name}={value}" for name, value in size.items() if value is not None)
    return ["python", "-c", f"from ata_gym import bench; bench.run({list(given)}, {names}{options}, out='results/run')"]
