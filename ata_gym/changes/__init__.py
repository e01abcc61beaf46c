"""How the workers of a pool change from round to round, as data.

An example is ``changes=[Switch(every=20_000), Walk(0.01, 0.7)]``. Changes are applied in the order
given. They draw from the row's key, the episode and the round alone, so that all policies meet the
same rounds.

``Throttling``, ``Leak``, ``ColdAfterIdle``, ``Warming`` and ``ShareTime`` follow the load. They
draw nothing, and the noise of the tasks stays the same for every policy. But the workers depend on
what was asked of them, and so on the policy. Then a dynamic oracle knows the coming round as its
own past allocations have made it, and does not plan for later rounds. The least cost of an episode
is not known, so that regret is not measured. Under ``ShareTime`` there is no dynamic oracle.
"""

from ata_gym.changes.change import Change
from ata_gym.changes.conditions import Conditions
from ata_gym.changes.faults import Crash, Spot
from ata_gym.changes.from_data import change_from_data, checked_changes
from ata_gym.changes.load import ColdAfterIdle, Leak, ShareTime, Throttling, Warming
from ata_gym.changes.speeds import Congestion, Correlated, Load, OnOff, Outliers, Periodic, Walk
from ata_gym.changes.switches import Jump, Redraw, Switch

__all__ = [
    "Change",
    "ColdAfterIdle",
    "Conditions",
    "Congestion",
    "Correlated",
    "Crash",
    "Jump",
    "Leak",
    "Load",
    "OnOff",
    "Outliers",
    "Periodic",
    "Redraw",
    "ShareTime",
    "Spot",
    "Switch",
    "Throttling",
    "Walk",
    "Warming",
    "change_from_data",
    "checked_changes",
]
