"""Policies around abrupt changes: how many rounds they need to follow, and what that costs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.jobs import Effort, Runner, on_this_machine
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.store.folder import open_folder
from ata_gym.bench.store.note import about_experiment, write_note
from ata_gym.bench.studies.tracking.experiment import TrackedExperiment, TrackedRun
from ata_gym.bench.studies.tracking.report import report
from ata_gym.scenarios import Scenario


def track(
    policies: Policies,
    scenario: str | Scenario,
    *,
    changes: int | Iterable[int] | None = None,
    before: int = 500,
    after: int = 2_000,
    rounds: int | None = None,
    seeds: int = 8,
    seed: int = 0,
    budget: int | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:
    """Measure how many rounds policies need to follow an abrupt change, and what it costs.

    A policy has followed when the expected round time of its allocations is within 10 % of the
    least possible one, on average over 20 rounds. There is a PolicyFailedWarning for each policy
    that failed.

    Args:
        policies: The policies, as for ``run``; their allocations must sum to the budget.
        scenario: A scenario or its name. Worker time has no price in it.
        changes: The number of rounds before a change, or before several ones; by default the abrupt
            changes of the scenario.
        before: Rounds to look at before each change.
        after: Rounds to look at after each change; the last of them ends the episode.
        rounds: The number of rounds in an episode, by default the scenario's horizon.
        seeds: The number of episodes.
        seed: The first seed; neighbouring seeds follow.
        budget: The number B of results in a round, by default the scenario's.
        out: A folder that keeps tables, the picture, records and a page. Killed or called again,
            the same call goes on where it was; policies may be added. Without it nothing is left on
            the disk.
        jobs: The number of policies that are played at once, as for ``run``.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to play anew what was played by other code, which is refused
            otherwise.
        runner: Where policies are played: by default on this machine.
        command: The words by which the page says how to repeat this; by default this call.

    Returns:
        Results whose records have a row for each policy, seed and round around a change, with the
        expected round time, the oracles' and the tasks of all workers; see ``experiment.SCHEMA``.

    Raises:
        ValueError: If there is no such policy or scenario, a policy does not play
            TaskAllocation-v0 or fails in its first round, nothing changes abruptly, or not where
            ``changes`` say so, workers may be away, a number is out of its range, or the folder
            holds other results.

    Example:
        >>> from ata_gym import Scenario, bench
        >>> from ata_gym.changes import Switch
        >>> from ata_gym.pools import exponential
        >>> reverse = Switch(at=(60,), permutation=(2, 1, 0))
        >>> scenario = Scenario(exponential([1.0, 4.0, 16.0]), 6, changes=(reverse,), horizon=100)
        >>> results = bench.track("dynamic-oracle,uta", scenario, before=20, seeds=2, jobs=1)
        >>> results.compare("dynamic-oracle", "uta").wins.mean
        1.0
    """
    policies_by_name = by_name(policies)
    size: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "seed": seed, "budget": budget}
    experiment = Experiment.on_scenario(scenario, price=0.0, **size)
    if isinstance(changes, int):
        changed_at: Sequence[int] | None = [changes]
    elif changes is None:
        changed_at = None
    else:
        changed_at = [*changes]
    tracked = TrackedExperiment.around(experiment, changed_at, before=before, after=after)
    size |= {"changes": changed_at, "before": before, "after": after}
    page_command = command or _call(policies_by_name, experiment.scenario.name, size)
    effort = Effort(jobs, save_every, rerun_changed, runner)
    return play(Tracking(policies_by_name, tracked), out, effort, page_command)


def _call(policies: Mapping[str, Any], scenario: str, size: Mapping[str, Any]) -> list[str]:
    """The words of a command that repeats a call of ``track``."""
    options = "".join(f", {name}={value}" for name, value in size.items() if value is not None)
    call = f"bench.track({[*policies]}, {scenario!r}{options}, out='results/tracked')"
    return ["python", "-c", f"from ata_gym import bench; {call}"]


@dataclass(frozen=True)
class Tracking(Study):
    """Policies around the abrupt changes of one scenario."""

    name: ClassVar[str] = "track"

    experiment: TrackedExperiment

    def check(self) -> None:
        for name in self.policies:
            self.experiment.try_out(name)

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        store = open_folder(folder, self.experiment.config())
        order = np.argsort(self.experiment.means_before(), kind="stable")
        note = {
            **about_experiment(self.experiment, self.policies),
            "changes": [*self.experiment.changed_at],
            "before": self.experiment.before,
            "after": self.experiment.after,
            "order": order.tolist(),
        }
        write_note(folder, self.name, command, note)
        return [Job(self.experiment, policy, store, TrackedRun) for policy in self.policies]

    @staticmethod
    def report(folder: Path) -> Report:
        return report(folder)
