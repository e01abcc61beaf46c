"""A fixed set of scenarios, with a version and a hash, and the policies that play by default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import gymnasium as gym

import ata_policies
from ata_gym.changes import Change
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.recorded import RECORDINGS, fingerprint_of, recorded_scenario
from ata_gym.scenarios.scenario import Maker
from ata_gym.utils.validation import unknown
from ata_policies.facts import granted
from ata_policies.registry import DEFAULTS


@dataclass(frozen=True, eq=False)
class ScenarioSet:
    """Scenarios that policies are compared on. Any change of one needs a new version."""

    name: str
    version: str
    """The version of the scenarios, their rounds and the prices, as ``fingerprint`` sees them."""
    built: Mapping[str, Maker]
    """What makes each scenario from its name."""
    prices: Sequence[float]
    """What a unit of worker time costs, in units of runtime; each scenario has each price."""
    quick: Mapping[str, int]
    """The scenarios of a quick look, and their numbers of rounds."""
    policies: Callable[[], Sequence[str]]
    """The names of the policies that play by default."""
    front: str
    """The scenario of the picture."""
    reference: str = "dynamic-ofta"
    """The policy by whose runtimes and worker times all others are divided.

    It is always played. It is OFTA; where workers change, the OFTA of each round.
    """
    recorded: Sequence[str] = ()
    """The names of the scenarios of recorded times."""
    front_prices: Sequence[float] = ()
    """Further prices, at which oracles play in the scenario of the picture.

    They know the distributions, and show what can be reached.
    """
    seeds: int = 8
    """Paired episodes in each scenario by default."""
    quick_seeds: int = 4
    quick_prices: ClassVar[Sequence[float]] = (0.0, 0.1)
    first_seed: int = 0
    """The seed of the first episode; each other seed is one more than the last."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all scenarios of the set, scenarios of recorded times last."""
        return (*self.built, *self.recorded)

    def find(self, name: str, folder: Path | None = None) -> Scenario:
        """Return the scenario of a name; one of recorded times is read from ``folder``.

        Raises:
            ValueError: If there is no such scenario.
        """
        if name in self.recorded:
            return recorded_scenario(name, folder)
        if name not in self.built:
            raise unknown("scenario of the leaderboard", name, self.names())
        return replace(self.built[name](name), name=name)

    def choose(
        self,
        wanted: Sequence[str] | None,
        folder: Path | None,
        quick: bool,
    ) -> tuple[list[Scenario], list[str]]:
        """Return the wanted scenarios, and sentences that a reader of the tables should know.

        Args:
            wanted: The names of the scenarios, by default all that can be made.
            folder: The folder of the recordings.
            quick: Whether it is a quick look, with few scenarios and rounds.

        Raises:
            ValueError: If there is no such scenario, or one is wanted whose recording is missing.
        """
        if quick:
            names = tuple(self.quick)
        else:
            names = self.names()
        for name in wanted or ():
            if name not in names:
                kind = "quick scenario" if quick else "scenario"
                raise unknown(f"{kind} of the leaderboard", name, names)
        chosen = names if wanted is None else wanted
        if folder is None:
            missing = [name for name in chosen if name in self.recorded]
        else:
            missing = []
        if wanted is not None and missing:
            raise ValueError(f"{', '.join(missing)}: give --data, the folder of the recordings")
        notes = []
        if quick:
            notes.append(
                "A quick look: few scenarios, rounds, prices and seeds, so a full run may rank"
                " otherwise.",
            )
        if missing:
            notes.append(
                f"Without the recordings {', '.join(missing)}: give their folder as --data.",
            )
        scenarios = [self.find(name, folder) for name in chosen if name not in missing]
        if quick:
            scenarios = [
                replace(scenario, horizon=self.quick[scenario.name]) for scenario in scenarios
            ]
        return scenarios, notes

    def fingerprint(self) -> str:
        """Return a hash of all that the version stands for.

        The keys of the data and their order are part of it.
        """
        scenarios = [
            [
                s.name,
                s.pool.to_data(),
                s.budget,
                s.horizon,
                s.published,
                *(c.to_data() for c in s.changes),
            ]
            for s in map(self.find, self.built)
        ]
        files = {name: RECORDINGS[name] for name in self.recorded}
        recordings = [
            [name, r.budget, r.rounds, r.digest, *(c.to_data() for c in r.changes)]
            for name, r in files.items()
        ]
        quick = [self.quick_prices, dict(self.quick)]
        data: dict[str, object] = {
            "prices": self.prices,
            "worlds": scenarios,
            "recordings": recordings,
            "quick": quick,
        }
        # A set that begins with seed 0 has no such key, so that its hash stays as it is.
        if self.first_seed:
            data["first seed"] = self.first_seed
        return fingerprint_of(data)

    @property
    def title(self) -> str:
        """The name, the version and the start of the hash."""
        return f"{self.name} {self.version}-{self.fingerprint()[:8]}"


def maker(
    pool: Callable[[], Pool], budget: int, rounds: int, summary: str, *changes: Change
) -> Maker:
    """Return what makes a scenario of ours from its name; the pool is made with it.

    Args:
        pool: What makes the pool.
        budget: Results that a round needs.
        rounds: The rounds of an episode.
        summary: The workers and their changes, in words.
        *changes: How the workers change.
    """
    return lambda name: Scenario(
        pool(),
        budget,
        rounds,
        changes,
        name=name,
        summary=summary,
        source="ours",
    )


FOLLOWERS = (
    "restarting-beta",
    "thompson-gamma:memory=restarting",
    "recent-average",
    "lb-bsp-ema",
    "lb-bsp-federated",
)
"""Learners for workers that change; they play where workers stay as they are, too."""

DYNAMIC_ORACLES = (
    "dynamic-ofta",
    "dynamic-oracle:tolerance=0.2",
    "race-dynamic-oracle",
    "dispatch-dynamic-oracle",
)
"""Oracles that see the conditions of each round."""


def usual_policies() -> list[str]:
    """Return the defaults, all policies for workers that stay as they are, and the followers."""
    steady = [name for name in ata_policies.names() if not ata_policies.load(name).nonstationary]
    return list(dict.fromkeys([*DEFAULTS.values(), *steady, *FOLLOWERS]))


def for_changing_workers() -> list[str]:
    """Return the policies that play where workers change.

    These are the default and some other allocation policies, the followers, all policies of race
    and dispatch that know nothing beforehand, and the oracles of each round.
    """
    policies = {name: ata_policies.load(name) for name in ata_policies.names()}
    env_of = {
        name: gym.spec(policy.env_id).name
        for name, policy in policies.items()
        if not granted(policy.knows)
    }
    return [
        DEFAULTS["ata_gym/TaskAllocation-v0"],
        *FOLLOWERS,
        # For workers that stay as they are.
        "thompson-beta",
        "certainty-equivalence",
        "ata-icml",
        "uta",
        *(name for name, env in env_of.items() if env == "TaskRace"),
        *(name for name, env in env_of.items() if env == "TaskDispatch"),
        *DYNAMIC_ORACLES,
    ]
