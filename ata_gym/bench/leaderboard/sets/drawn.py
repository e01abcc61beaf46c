"""The set "drawn": workers drawn anew for each seed, for policies that were trained. Any change needs a new version.

The scenarios are those of ``ata_gym.scenarios.for_agents``. The seeds are the first of ``SPLITS["test"]``, so no policy
that is trained on the seeds of "train" and chosen on those of "validation" has met these workers. Costs are compared
with the dynamic oracles of each env, which know the workers of each seed: the column ``cost/oracle``. Intervals are
over seeds, and so over workers.
"""

from __future__ import annotations

from types import MappingProxyType

from ata_gym.bench.leaderboard.sets.players import for_changing_workers
from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet
from ata_gym.scenarios import scenario
from ata_gym.scenarios.for_agents import FOR_AGENTS, SMALL, SPLITS

DRAWN = ScenarioSet(
    name="drawn",
    version="2",
    built=MappingProxyType({name: scenario for name in FOR_AGENTS if name != SMALL}),
    prices=(0.0, 0.1, 1.0),
    quick=MappingProxyType({"drawn-6-v1": 25, "drawn-3-to-16-v1": 50, "drawn-heavy-8-v1": 50}),
    quick_prices=(0.0, 0.1),
    players=for_changing_workers,
    reference="dynamic-ofta",
    front="drawn-6-v1",
    seeds=32,
    quick_seeds=8,
    first_seed=SPLITS["test"][0],
)
