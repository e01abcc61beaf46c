"""The zoo on the worlds of the leaderboard: who plays what, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.processes import Task
from ata_gym.bench.store import open_folder
from ata_gym.bench.worlds import FRONT, FRONT_PRICES
from ata_gym.scenarios import Scenario

REFERENCE = "ofta"
"""Every ratio of runtimes or worker times is to its; it is always played."""

LEARNER, ORACLE, BASELINE = "learner", "oracle", "baseline"

_KNOWN = ("the means", "the laws")
"""What an oracle ``knows`` begins with one of these."""


def usual_policies() -> list[str]:
    """The names of all policies but those made for a world that changes: no world of the leaderboard does.

    >>> {"thompson", "window-thompson"} & set(usual_policies())
    {'thompson'}
    """
    return [name for name in ata_policies.names() if not ata_policies.load(name).follows]


@dataclass(frozen=True)
class Entry:
    """A policy of the leaderboard."""

    policy: str
    env: str
    """The id that it plays, without the namespace and the version."""
    kind: str
    """``ORACLE``: it knows what others must learn; ``BASELINE``: it neither knows nor learns; else ``LEARNER``."""
    priced: bool
    """Whether it is played once for each price; if not, once for all."""

    @classmethod
    def of(cls, name: str) -> Entry:
        """The entry of a policy's name.

        Raises
        ------
        ValueError
            If there is none.
        """
        policy = ata_policies.load(name)
        kind = ORACLE if policy.knows.startswith(_KNOWN) else LEARNER if policy.learns else BASELINE
        return cls(name, short_id(policy.env_id), kind, policy.priced)


def short_id(env_id: str) -> str:
    """The name in an id.

    >>> short_id("ata_gym/TaskRace-v0")
    'TaskRace'
    """
    return env_id.partition("/")[2].partition("-")[0]


class Play(NamedTuple):
    """One run, and the prices at which it counts."""

    entry: Entry
    task: Task
    prices: tuple[float, ...]


@dataclass(frozen=True)
class Leaderboard:
    """Who plays, where, at which prices, how often, and where the results go."""

    worlds: Sequence[Scenario]
    prices: Sequence[float]
    entries: Sequence[Entry]
    seeds: int
    out: Path
    front_prices: Sequence[float] = FRONT_PRICES
    """At these, priced oracles play the world of the picture, too."""
    quick: bool = False
    """Whether it is but a quick look."""

    def unable(self) -> dict[str, str]:
        """Policies that cannot be made for the first world, such as for want of a hyperparameter, and why."""
        experiment, reasons = self._experiment(self.worlds[0], self.prices[0]), {}
        for entry in self.entries:
            envs = experiment.make_envs(ata_policies.load(entry.policy).env_id, rows=1)
            try:
                ata_policies.make(entry.policy, envs)
            except ValueError as error:
                reasons[entry.policy] = str(error)
        return reasons

    def plays(self) -> list[Play]:
        """Every run, world by world; a policy that does not look at the price plays once for all prices.

        Each world and price has a results folder of its own.

        Raises
        ------
        ValueError
            If one of these holds the results of another configuration.
        """
        made, opened = [], {}
        for world in self.worlds:
            for entry in self.entries:
                for price, counts_at in self._priced(entry, world):
                    experiment = self._experiment(world, price)
                    path = self.out / "worlds" / world.name / f"price-{price:g}"
                    if path not in opened:
                        opened[path] = open_folder(path, experiment.config())
                    made.append(Play(entry, Task(experiment, entry.policy, opened[path]), counts_at))
        return made

    def _priced(self, entry: Entry, world: Scenario) -> list[tuple[float, tuple[float, ...]]]:
        """The prices at which an entry plays a world, each with those at which the run counts."""
        if not entry.priced:
            return [(self.prices[0], tuple(self.prices))]
        more = self.front_prices if world.name == FRONT and entry.kind == ORACLE else ()
        return [(price, (price,)) for price in sorted({*self.prices, *more})]

    def _experiment(self, world: Scenario, price: float) -> Experiment:
        return Experiment.on_scenario(world, seeds=self.seeds, price=price)


def finals(plays: Sequence[Play]) -> pl.DataFrame:
    """What each of some finished runs cost in the end, at each price at which it counts.

    Returns
    -------
    Columns env, price, world, policy, kind, seed, runtime, total_worker_time, cost.
    """
    frames = []
    for entry, task, prices in plays:
        records = task.folder.results([entry.policy])
        last = records.filter(pl.col("round") == pl.col("round").max())
        about = {"env": entry.env, "world": task.experiment.title, "policy": entry.policy, "kind": entry.kind}
        frames += [
            last.select(
                *(pl.lit(value).alias(name) for name, value in (about | {"price": price}).items()),
                *("seed", "runtime", "total_worker_time"),
                cost=pl.col("runtime") + price * pl.col("total_worker_time"),
            )
            for price in prices
        ]
    return pl.concat(frames)
