"""The leaderboard: policies on a fixed set of scenarios, at several prices of worker time."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import gymnasium as gym

import ata_policies
from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report.report import Report
from ata_gym.bench.role import ORACLE, Role
from ata_gym.bench.runner.jobs import Effort, Runner, on_this_machine
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Failure, Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.store.folder import open_folder
from ata_gym.bench.store.note import Note, about_policy, training_remarks, write_note
from ata_gym.bench.studies.leaderboard import timings as decision_timings
from ata_gym.bench.studies.leaderboard.report import report
from ata_gym.bench.studies.leaderboard.scenario_set import ScenarioSet
from ata_gym.bench.studies.leaderboard.sets import SETS
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.card import scenario_card
from ata_gym.utils.errors import explained
from ata_gym.utils.validation import non_negative, unknown, whole_number
from ata_policies.registry import DEFAULTS, RegisteredPolicy

Item = TypeVar("Item", str, float)


def leaderboard(
    set_name: str = "steady",
    *,
    quick: bool = False,
    policies: Policies | None = None,
    scenarios: str | Iterable[str] | None = None,
    prices: float | Iterable[float] | None = None,
    seeds: int | None = None,
    data: str | os.PathLike[str] | None = None,
    timings: bool = False,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:
    """Rank policies by cost on a fixed set of scenarios, which has a version.

    The cost is runtime + price x worker time. All policies are played on the same task times, and
    every ratio is one of values on the same seeds. Policies of the set that cannot be made, and
    scenarios whose recordings are not given, are left out, and ``Results.remarks`` says so. There
    is a PolicyFailedWarning for each policy that failed.

    Args:
        set_name: ``steady``, whose workers stay as they are; ``changing``; ``unseen``, kinds of
            workers that no policy was tuned on; ``drawn``, workers that are drawn anew for each
            seed; or ``cluster``, workers as clusters have them, drawn anew as well.
        quick: Whether it is a quick look: few scenarios, rounds, prices and seeds.
        policies: The policies, as for ``run``, by default the policies of the set. The policy
            by whose clocks all others are divided always plays: OFTA, or the OFTA of each round.
        scenarios: Names of scenarios of the set, by default all.
        prices: What a unit of worker time costs, in units of runtime; by default the set's.
        seeds: The number of episodes in each scenario, by default the set's number.
        data: The folder of the recordings that some scenarios replay.
        timings: Whether to measure the processor time of a decision of each policy, too, on this
            machine, which takes up to some minutes for each; a measured one is kept in ``out``.
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
        Results whose table has a row for each env, price, policy and quantity: geometric means over
        the scenarios of the ratios to OFTA, to the best learner and to the best oracle.

    Raises:
        ValueError: If there is no such set, policy or scenario, a number is out of its range, a
            policy cannot be made, a recording is missing, or the folder holds other results.

    Example:
        >>> from ata_gym import bench
        >>> few = {"scenarios": "regret", "prices": 0.0, "seeds": 2, "jobs": 1}
        >>> results = bench.leaderboard(quick=True, policies="uta,thompson-beta", **few)
        >>> results.compare("thompson-beta", "uta").ratio.high < 0.5
        True
    """
    scenario_names = _several("scenario", scenarios)
    prices_asked = _several("price", prices)
    if policies is None:
        policies_by_name = None
        policy_names = None
    else:
        policies_by_name = by_name(policies)
        policy_names = [*policies_by_name]
    if data is None:
        recordings = None
        recordings_text = None
    else:
        recordings = Path(data)
        recordings_text = str(data)
    study = Leaderboard.on_set(
        set_name,
        policies_by_name,
        scenario_names,
        prices_asked,
        seeds,
        recordings,
        quick=quick,
        timings=timings,
    )
    options = {
        "quick": quick or None,
        "policies": policy_names,
        "scenarios": scenario_names,
        "prices": prices_asked,
        "seeds": seeds,
        "data": recordings_text,
        "timings": timings or None,
    }
    effort = Effort(jobs, save_every, rerun_changed, runner)
    return play(study, out, effort, command or _call(set_name, options))


def _several(noun: str, values: Item | Iterable[Item] | None) -> list[Item] | None:
    """Return values that were given as one value or several ones, each once; None for None.

    Raises:
        ValueError: If there is none.
    """
    if values is None:
        return None
    several: list[Any]
    if isinstance(values, str | Real):
        several = [values]
    else:
        several = [*dict.fromkeys(cast("Iterable[Item]", values))]
    if not several:
        raise ValueError(f"name at least one {noun}")
    return several


def _call(set_name: str, options: Mapping[str, object]) -> list[str]:
    """The words of a command that repeats a call of ``leaderboard``."""
    given_options = {name: value for name, value in options.items() if value is not None}
    texts = [repr(set_name), *(f"{name}={value!r}" for name, value in given_options.items())]
    call = f"bench.leaderboard({', '.join(texts)}, out='results/leaderboard')"
    return ["python", "-c", f"from ata_gym import bench; {call}"]


class PricedJob(NamedTuple):
    """A job, and the prices at which its results count."""

    role: Role
    job: Job
    prices: tuple[float, ...]


@dataclass(frozen=True)
class Leaderboard(Study):
    """Policies on the scenarios of a set, at several prices."""

    name: ClassVar[str] = "leaderboard"

    scenario_set: ScenarioSet
    scenarios: Sequence[Scenario]
    """The scenarios of the set that are played."""
    prices: Sequence[float]
    """What a unit of worker time costs, in units of runtime; each scenario has all of them."""
    seeds: int
    """The episodes of each policy in each scenario."""
    quick: bool = False
    """Whether it is the short version."""
    remarks: Sequence[str] = ()
    """Sentences that a reader of its tables should know."""
    timings: bool = False
    """Whether decisions are timed."""
    checked: bool = False
    """Whether it is known that all policies can be made."""

    @classmethod
    def on_set(
        cls,
        set_name: str,
        policies: Mapping[str, RegisteredPolicy | None] | None,
        scenarios: Sequence[str] | None,
        prices: Sequence[float] | None,
        seeds: int | None,
        data: Path | None,
        *,
        quick: bool,
        timings: bool,
    ) -> "Leaderboard":
        """Return the leaderboard of a set; what is None is as the set has it.

        The arguments are as for ``leaderboard``, but policies are by name.
        """
        if set_name not in SETS:
            raise unknown("set of scenarios", set_name, [*SETS])
        scenario_set = SETS[set_name]
        played, remarks = scenario_set.choose(scenarios, data, quick)
        if quick:
            usual_prices = scenario_set.quick_prices
            usual_seeds = scenario_set.quick_seeds
        else:
            usual_prices = scenario_set.prices
            usual_seeds = scenario_set.seeds
        if seeds is None:
            seeds = usual_seeds
        if policies is None:
            others: Mapping[str, RegisteredPolicy | None] = dict.fromkeys(scenario_set.policies())
        else:
            others = policies
        board = cls(
            {scenario_set.reference: None, **others},
            scenario_set,
            played,
            [float(non_negative("each price", price)) for price in prices or usual_prices],
            whole_number("seeds", seeds),
            quick,
            remarks,
            timings,
        )
        if policies is None:
            return board.without_unable()
        return board

    def unable(self) -> dict[str, str]:
        """Return the policies that cannot be made for the first scenario, each with the reason.

        A policy may lack a hyperparameter, for instance.
        """
        experiment = self.experiment(self.scenarios[0], self.prices[0])
        reasons = {}
        for name in self.policies:
            envs = experiment.make_envs(ata_policies.load(name).env_id, rows=1)
            try:
                ata_policies.make(name, envs)
            except (Exception, SystemExit) as error:
                # A policy of the user's may raise anything.
                reasons[name] = explained(error)
        return reasons

    def without_unable(self) -> "Leaderboard":
        """Return the leaderboard of the policies that can be made, with a remark on the others."""
        unable = self.unable()
        able = {name: policy for name, policy in self.policies.items() if name not in unable}
        left_out = [f"Left out: {name} ({reason})." for name, reason in unable.items()]
        return replace(self, policies=able, remarks=[*self.remarks, *left_out], checked=True)

    def check(self) -> None:
        if self.checked:
            return
        unable = self.unable()
        if unable:
            raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        priced_jobs = self.jobs(folder)
        write_note(folder, self.name, command, self._about(folder, priced_jobs))
        return [priced_job.job for priced_job in priced_jobs]

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        failures = super().run(folder, jobs, effort)
        if self.timings:
            decision_timings.measure(folder, [*self.policies])
        return failures

    @staticmethod
    def report(folder: Path) -> Report:
        return report(folder)

    def label(self, job: Job) -> str:
        scenario = job.experiment.scenario
        label = f"{job.policy} in {scenario.name}"
        if ata_policies.load(job.policy).priced:
            label += f" at price {scenario.price:g}"
        return label

    def bar(self, job: Job) -> str:
        return job.experiment.scenario.name

    def jobs(self, folder: Path) -> list[PricedJob]:
        """Return every job, scenario by scenario, with the folders opened.

        A policy whose decisions do not depend on the price plays once for all prices.

        Raises:
            ValueError: If a folder is refused; see ``store.open_folder``.
        """
        roles = [Role.from_name(name) for name in self.policies]
        plan = [
            (role, self.experiment(scenario, price), counts_at)
            for scenario, role in product(self.scenarios, roles)
            for price, counts_at in self._priced(role, scenario)
        ]
        experiments = {_path(folder, experiment): experiment for _, experiment, _ in plan}
        # Folders that are there already come first: where one is refused, none has been made.
        paths = sorted(experiments, key=lambda path: not path.exists())
        folders = {path: open_folder(path, experiments[path].config()) for path in paths}
        return [
            PricedJob(
                role, Job(experiment, role.policy, folders[_path(folder, experiment)]), counts_at
            )
            for role, experiment, counts_at in plan
        ]

    def _priced(self, role: Role, scenario: Scenario) -> list[tuple[float, tuple[float, ...]]]:
        """Return the prices at which a policy plays, each with the prices where it counts."""
        if not role.priced:
            return [(self.prices[0], tuple(self.prices))]
        # In the scenario of the picture, oracles play at more prices: their points form a front.
        pictured = (
            scenario.name == self.scenario_set.front and role.kind == ORACLE and not self.quick
        )
        further_prices = self.scenario_set.front_prices if pictured else ()
        return [(price, (price,)) for price in sorted({*self.prices, *further_prices})]

    def experiment(self, scenario: Scenario, price: float) -> Experiment:
        """Return what is played on a scenario at a price."""
        return Experiment.on_scenario(
            scenario,
            seeds=self.seeds,
            seed=self.scenario_set.first_seed,
            price=price,
        )

    @property
    def title(self) -> str:
        """The set and its version, and what is played of it."""
        quick = " (quick look)" if self.quick else ""
        played = f"{len(self.scenarios)} of {len(self.scenario_set.names())} scenarios"
        return (
            f"Leaderboard {self.scenario_set.title}{quick}: {played}, {plural(self.seeds, 'seed')}"
        )

    def _about(self, folder: Path, priced_jobs: Sequence[PricedJob]) -> Note:
        """Return what the report needs to know."""
        # Each sentence once, although several scenarios may have it.
        trained: dict[str, None] = {}
        scenarios = []
        for scenario in self.scenarios:
            experiment = self.experiment(scenario, self.prices[0])
            trained |= dict.fromkeys(training_remarks(experiment, self.policies))
            scenarios.append(
                {
                    "name": scenario.name,
                    "summary": scenario.summary,
                    "workers": scenario.pool.n,
                    "budget": scenario.budget,
                    "rounds": scenario.horizon,
                    "card": scenario_card(scenario).to_data(),
                }
            )
        return {
            "title": self.title,
            "reference": self.scenario_set.reference,
            "front": self.scenario_set.front,
            "seeds": self.seeds,
            "first_seed": self.scenario_set.first_seed,
            "prices": [*self.prices],
            "remarks": [*self.remarks, *trained],
            "defaults": {gym.spec(env_id).name: name for env_id, name in DEFAULTS.items()},
            "scenarios": scenarios,
            "policies": [about_policy(name) for name in self.policies],
            "jobs": [
                {
                    "policy": job.policy,
                    "scenario": job.experiment.scenario.name,
                    "prices": [*prices],
                    "folder": job.folder.path.relative_to(folder).as_posix(),
                }
                for _, job, prices in priced_jobs
            ],
        }


def _path(folder: Path, experiment: Experiment) -> Path:
    """Return the folder of an experiment in the folder of a leaderboard."""
    scenario = experiment.scenario
    return folder / "scenarios" / scenario.name / f"price-{scenario.price:g}"
