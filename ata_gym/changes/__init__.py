"""How the workers of a pool change from round to round, as data.

An example is ``changes=[Switch(every=20_000), Walk(0.01, 0.7)]``. Changes are applied in the order
given. They draw from the row's key, the episode and the round alone, so that all policies meet the
same rounds.
"""

from ata_gym.changes.change import Change
from ata_gym.changes.conditions import Conditions
from ata_gym.changes.faults import Crash, Spot
from ata_gym.changes.from_data import change_from_data, checked_changes
from ata_gym.changes.speeds import Congestion, Correlated, Load, OnOff, Outliers, Periodic, Walk
from ata_gym.changes.switches import Jump, Redraw, Switch

__all__ = [
    "Change",
    "Conditions",
    "Congestion",
    "Correlated",
    "Crash",
    "Jump",
    "Load",
    "OnOff",
    "Outliers",
    "Periodic",
    "Redraw",
    "Spot",
    "Switch",
    "Walk",
    "change_from_data",
    "checked_changes",
]
