"""The processor time of a policy's decisions: relative to ATA's, in a scenario, and against the number of workers."""

from collections.abc import Sequence
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
        "n = 51, B = 23": scenario("icml2025-cifar100"), "the same, speeds walk": scenario("changing-walk"),
        "n = 1,000, B = 500": _exponential(1_000, 500), "n = 10,000, B = 23": _exponential(10_000, _BUDGET),
    }  # fmt: skip


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


def by_worlds(name: str) -> tuple[dict[str, Any], Table, list[Path]]:
    """The decisions of one policy, in each of ``timed_worlds``: as data and as a table; and no picture."""
    times = {title: decision_times(name, world, FIRST) for title, world in timed_worlds().items()}
    rows = [(title, *(f"{milliseconds:.3g}" for milliseconds in of)) for title, of in times.items()]
    about = f"{name}: milliseconds of processor time of a decision in the first {FIRST} rounds, one row"
    table = Table(about, {"workers": LEFT, **right(("mean", "worst"))}, rows)
    return {title: of._asdict() for title, of in times.items()}, table, []


def by_workers(names: Sequence[str], picture: Path) -> tuple[dict[str, Any], Table, list[Path]]:
    """The mean decisions of policies with each number of workers of ``SIZES``, timed one after the other, and drawn."""
    times = {name: [decision_times(name, _exponential(n, _BUDGET), FIRST).mean for n in SIZES] for name in names}
    large = np.array(SIZES) >= _LARGE
    slopes = {n: np.polyfit(np.log(SIZES)[large], np.log(each)[large], 1)[0] for n, each in times.items()}
    rows = [(name, *(f"{ms:.3g}" for ms in each), f"{slopes[name]:.2f}") for name, each in times.items()]
    columns = {"policy": LEFT, **right((*(f"{n:,}" for n in SIZES), f"slope from\n{_LARGE:,} on"))}
    setup = f"mean of the first {FIRST} rounds, one row, B = {_BUDGET}"
    with style.figure(6.5, 3.8) as drawn:
        axes, top = drawn.subplots(), max(each[-1] for each in times.values())
        for name, look in style.lines(names).items():
            axes.plot(SIZES, times[name], label=f"{name}: slope {slopes[name]:.2f}", **look)
        axes.plot(SIZES[-2:], [0.3 * top, 3 * top], color="black", linewidth=0.8, label="linear")
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="milliseconds of a decision")
        style.plain_numbers(axes)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend()
        made = style.save(drawn, picture.with_suffix(""), f"A decision, {setup}")
    about = f"milliseconds of processor time of a decision,\n{setup}; by the number of workers"
    data = {name: dict(zip(SIZES, each, strict=True)) for name, each in times.items()}
    return data, Table(about, columns, rows), made
