"""The sets of scenarios of the leaderboard. Any change of one needs a new version of it."""

from ata_gym.bench.studies.leaderboard.sets.drawn import CLUSTER, DRAWN
from ata_gym.bench.studies.leaderboard.sets.fixed import CHANGING, STEADY, UNSEEN

__all__ = ["CHANGING", "CLUSTER", "DRAWN", "SETS", "STEADY", "UNSEEN"]

SETS = {
    scenario_set.name: scenario_set for scenario_set in (STEADY, CHANGING, UNSEEN, DRAWN, CLUSTER)
}
"""All sets, by name."""
