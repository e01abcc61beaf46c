"""The processor time of a policy's decisions: relative to ATA's, in a scenario, and against the number of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple, cast

import numpy as np

import ata_policies
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario, scenario
from ata_gym.typing import Floats
from ata_policies.policy import Policy, State
from ata_policies.steps import play

SETUP = "8 rows of 51 workers, B = 23, price 0.1"  # what is played while costs are compared with ATA's
FIRST = 100  # rounds in which a learner decides most, and in which it is timed
_STEADY, _CHANGING = 2_000, 500  # rounds of the longer comparisons

SIZES = tuple(10**k for k in range(1, 7))  # numbers of workers of the picture
_BUDGET = 23
_ABOUT = f"mean of the first {FIRST} rounds, one row, B = {_BUDGET}"
_LARGE = 10_000  # the slope is fitted from so many workers on: with fewer, what every decision costs hides it

_BESIDE, _CHUNK = "ata", 20
_MOST = 4_000  # decisions that are timed, and at least those of three rounds


class _Player:
    """A policy that plays an experiment, and the processor time of each of its decisions."""

    def __init__(self, name: str, experiment: Experiment) -> None:
        envs = experiment.make_envs(ata_policies.load(name).env_id)
        self.policy, self.seconds = ata_policies.make(name, envs), list[float]()
        self.privileged = self.policy.privileged
        self.steps_a_round = experiment.scenario.budget if isinstance(envs.single_action_space, Dispatch) else 1
        self.steps = play(cast("Policy", self), envs)

    def predict(self, *seen: Any, **privileged: Any) -> tuple[Any, State]:
        start = process_time()
        decided = self.policy.predict(*seen, **privileged)
        self.seconds.append(process_time() - start)
        return decided

    def play(self, rounds: int) -> None:
        for _ in islice(self.steps, rounds * self.steps_a_round):
            pass


class RelativeCosts(NamedTuple):
    """Processor time of a policy's predictions over that of ATA's, in ``SETUP``."""

    first: float  # in the first 100 rounds of icml2025-cifar100, where a learner has most to decide
    steady: float  # in its first 2,000
    changing: float  # in the first 500 of changing-walk, whose speeds never stay


def relative_costs(name: str, steady: int = _STEADY, changing: int = _CHANGING) -> RelativeCosts:
    """The costs of a policy beside ATA's, measured in turns."""
    return RelativeCosts(*_ratios(name, "icml2025-cifar100", FIRST, steady), *_ratios(name, "changing-walk", changing))


def _ratios(name: str, scenario: str, *rounds: int) -> list[float]:
    """Times of a policy over ATA's in the first rounds of a scenario, for several numbers of them in order."""
    setup = Experiment.on_scenario(scenario, rounds=rounds[-1], seeds=8, price=0.1)
    for warm in (name, _BESIDE):  # compiles
        _Player(warm, setup).play(_CHUNK)
    ours, beside = _Player(name, setup), _Player(_BESIDE, setup)
    found = []
    for start, end in pairwise((0, *rounds)):
        for first in range(start, end, _CHUNK):
            for player in (ours, beside):
                player.play(min(_CHUNK, end - first))
        found.append(sum(ours.seconds) / sum(beside.seconds))
    return found


def timed_worlds() -> dict[str, Scenario]:
    """The worlds in which decisions are timed, from few workers to many."""
    return {
        "n = 51, B = 23": scenario("icml2025-cifar100"),
        "the same, speeds walk": scenario("changing-walk"),
        "n = 1,000, B = 500": _exponential(1_000, 500),
        "n = 10,000, B = 23": _exponential(10_000, _BUDGET),
    }


def _exponential(n: int, budget: int) -> Scenario:
    return Scenario(exponential(np.linspace(1.0, 20.0, n)), budget)


class DecisionTimes(NamedTuple):
    """Processor time of the decisions of one row, in milliseconds."""

    mean: float
    worst: float


def decision_times(name: str, scenario: Scenario, rounds: int) -> DecisionTimes:
    """How long the decisions of a policy take in the first rounds of a scenario, one row, the longest included.

    The same rounds are played twice, and the shorter time of each decision counts. A decision of dispatch is one
    completion; at most 4,000 decisions are timed, or those of three rounds.
    """
    experiment = Experiment.on_scenario(scenario, rounds=rounds, seeds=1)
    plays: list[Floats] = []
    for _ in range(2):
        player = _Player(name, experiment)
        player.play(min(rounds, max(3, _MOST // player.steps_a_round)))
        plays.append(np.array(player.seconds))
    times = 1e3 * np.minimum(*plays)
    return DecisionTimes(float(times.mean()), float(times.max()))


Times = Mapping[str, Mapping[int, float]]
"""Mean milliseconds of a decision, by policy and number of workers."""


def mean_times(names: Sequence[str], rounds: int) -> Times:
    """How long decisions take in the first rounds, for the numbers of workers of ``SIZES``; one after the other."""
    for name in names:  # compiles
        decision_times(name, _exponential(SIZES[0], _BUDGET), rounds)
    return {name: {n: decision_times(name, _exponential(n, _BUDGET), rounds).mean for n in SIZES} for name in names}


def slope(times: Mapping[int, float]) -> float:
    """The least-squares slope of ln(time) in ln(n), from 10,000 workers on.

    >>> round(slope({100: 1.0, 10_000: 1.0, 100_000: 10.0, 1_000_000: 100.0}), 6)  # linear in the end
    1.0
    """
    large = [n for n in times if n >= _LARGE]
    return float(np.polyfit(np.log(large), np.log([times[n] for n in large]), 1)[0])


def worlds_table(name: str, times: Mapping[str, DecisionTimes]) -> Table:
    """The times of one policy, one row for each world."""
    rows = [(title, *(f"{milliseconds:.3g}" for milliseconds in of)) for title, of in times.items()]
    about = f"{name}: milliseconds of processor time of a decision in the first {FIRST} rounds, one row"
    return Table(about, {"workers": LEFT, **right(("mean", "worst"))}, rows)


def workers_table(times: Times) -> Table:
    """The times, one row for each policy."""
    rows = [(name, *(f"{ms:.3g}" for ms in each.values()), f"{slope(each):.2f}") for name, each in times.items()]
    columns = {"policy": LEFT, **right((*(f"{n:,}" for n in SIZES), f"slope from\n{_LARGE:,} on"))}
    return Table(f"milliseconds of processor time of a decision,\n{_ABOUT}; by the number of workers", columns, rows)


def draw(times: Times, stem: Path) -> list[Path]:
    """Draw the times against the number of workers on logarithmic axes, beside a line of slope 1."""
    with style.figure(6.5, 3.8) as picture:
        axes = picture.subplots()
        for (name, each), look in zip(times.items(), style.lines([*times]).values(), strict=True):
            axes.plot([*each], [*each.values()], label=f"{name}: slope {slope(each):.2f}", **look)
        top = max(max(each.values()) for each in times.values())
        axes.plot(
            SIZES[-2:], [3 * top * n / SIZES[-1] for n in SIZES[-2:]], color="black", linewidth=0.8, label="linear"
        )
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="milliseconds of a decision")
        style.plain_numbers(axes)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend()
        return style.save(picture, stem, f"A decision, {_ABOUT}")
