"""The sets by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ata_gym.bench.leaderboard.sets.changing import CHANGING
from ata_gym.bench.leaderboard.sets.drawn import DRAWN
from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet
from ata_gym.bench.leaderboard.sets.steady import STEADY
from ata_gym.bench.leaderboard.sets.unseen import UNSEEN

SETS: Mapping[str, ScenarioSet] = MappingProxyType({one.name: one for one in (STEADY, CHANGING, UNSEEN, DRAWN)})
