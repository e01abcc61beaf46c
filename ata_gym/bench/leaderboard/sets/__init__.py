"""The sets of scenarios of the leaderboard, each fixed and with a version."""

from ata_gym.bench.leaderboard.sets.changing import CHANGING, DRAWN
from ata_gym.bench.leaderboard.sets.steady import STEADY
from ata_gym.bench.leaderboard.sets.unseen import UNSEEN

SETS = {one.name: one for one in (STEADY, CHANGING, UNSEEN, DRAWN)}
