"""What a set of scenarios is, fixed, with a version that a hash stands for; and who plays it where nobody is named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import gymnasium as gym

import ata_policies
from ata_gym.changes import Change
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.recorded import RECORDINGS, fingerprint_of, recorded
from ata_gym.scenarios.scenario import Maker
from ata_gym.utils.validation import unknown
from ata_policies.facts import granted
from ata_policies.registry import DEFAULTS


@dataclass(frozen=True, eq=False)
class ScenarioSet:
    """Scenarios that policies are compared on. Any change of one needs a new version."""

    name: str
    version: str  # the version of the scenarios, their rounds and the prices, as ``fingerprint`` sees them
    built: Mapping[str, Maker]  # what makes each scenario from its name
    prices: Sequence[float]
    """What a unit of worker time costs, in units of runtime; each scenario is played at each price."""
    quick: Mapping[str, int]  # the scenarios of a quick look, and their numbers of rounds
    players: Callable[[], Sequence[str]]  # the names of the policies that play by default
    front: str  # the scenario of the picture
    reference: str = "dynamic-ofta"
    """Runtimes and worker times are divided by those of this policy, which is always played: OFTA, of each round where
    workers change."""
    recorded: Sequence[str] = ()  # the names of the scenarios of recorded times
    front_prices: Sequence[float] = ()
    """At these prices, oracles that know the distributions show what can be reached in the scenario of the picture."""
    seeds: int = 8  # paired episodes in each scenario by default
    quick_seeds: int = 4
    quick_prices: ClassVar[Sequence[float]] = (0.0, 0.1)
    first_seed: int = 0  # the seed of the first episode; those of the others follow it

    def names(self) -> tuple[str, ...]:
        """The names of all scenarios of the set, those of recorded times last."""
        return (*self.built, *self.recorded)

    def find(self, name: str, folder: Path | None = None) -> Scenario:
        """The scenario of that name; one of recorded times is read from ``folder``."""
        if name in self.recorded:
            return recorded(name, folder)
        if name not in self.built:
            raise unknown("scenario of the leaderboard", name, self.names())
        return replace(self.built[name](name), name=name)

    def choose(
        self, wanted: Sequence[str] | None, folder: Path | None, quick: bool
    ) -> tuple[list[Scenario], list[str]]:
        """The wanted scenarios, by default all that can be made; and what a reader of the tables should know."""
        known = tuple(self.quick) if quick else self.names()
        for name in wanted or ():
            if name not in known:
                raise unknown(f"{'quick ' * quick}scenario of the leaderboard", name, known)
        chosen = known if wanted is None else wanted
        lacking = [name for name in chosen if name in self.recorded] if folder is None else []
        if wanted is not None and lacking:
            raise ValueError(f"{', '.join(lacking)}: give --data, the folder of the recordings")
        notes = ["A quick look: few scenarios, rounds, prices and seeds, so a full run may rank otherwise."] * quick
        notes += [f"Without the recordings {', '.join(lacking)}: give their folder as --data."] * bool(lacking)
        found = [self.find(name, folder) for name in chosen if name not in lacking]
        return ([replace(one, horizon=self.quick[one.name]) for one in found] if quick else found), notes

    def fingerprint(self) -> str:
        """A hash of all that the version stands for; its keys and their order are part of it."""
        worlds = [
            [s.name, s.pool.to_data(), s.budget, s.horizon, s.published, *(c.to_data() for c in s.changes)]
            for s in map(self.find, self.built)
        ]
        files = {name: RECORDINGS[name] for name in self.recorded}
        recordings = [
            [name, r.budget, r.rounds, r.digest, *(c.to_data() for c in r.changes)] for name, r in files.items()
        ]
        quick = [self.quick_prices, dict(self.quick)]
        data = {"prices": self.prices, "worlds": worlds, "recordings": recordings, "quick": quick}
        return fingerprint_of(data | ({"first seed": self.first_seed} if self.first_seed else {}))

    @property
    def title(self) -> str:
        """The name, the version and the start of the hash."""
        return f"{self.name} {self.version}-{self.fingerprint()[:8]}"


def on(pool: Callable[[], Pool], budget: int, rounds: int, summary: str, *changes: Change) -> Maker:
    """Makes a scenario of ours; the pool is made with it."""
    return lambda name: Scenario(pool(), budget, rounds, changes, name=name, summary=summary, source="ours")


FOLLOWERS = ("restarting-beta", "thompson-gamma:memory=restarting", "recent-average", "lb-bsp-ema", "lb-bsp-federated")
"""Learners for workers that change, which are shown where workers stay as they are, too."""

DYNAMIC_ORACLES = ("dynamic-ofta", "dynamic-oracle:tolerance=0.2", "race-dynamic-oracle", "dispatch-dynamic-oracle")
"""Oracles that see the conditions of each round."""


def usual_policies() -> list[str]:
    """The defaults, all policies for workers that stay as they are, and the followers."""
    steady = [name for name in ata_policies.names() if not ata_policies.load(name).nonstationary]
    return list(dict.fromkeys([*DEFAULTS.values(), *steady, *FOLLOWERS]))


def for_changing_workers() -> list[str]:
    """The default and some other allocation policies, followers, all races and dispatch, and oracles of each round."""
    policies = {name: ata_policies.load(name) for name in ata_policies.names()}
    learners = {name: one.env_id for name, one in policies.items() if not granted(one.knows)}
    return [
        DEFAULTS["ata_gym/TaskAllocation-v0"],
        *FOLLOWERS,
        *("thompson-beta", "certainty-equivalence", "ata-icml", "uta"),  # for workers that stay
        *(name for env in ("TaskRace", "TaskDispatch") for name in learners if gym.spec(learners[name]).name == env),
        *DYNAMIC_ORACLES,
    ]
