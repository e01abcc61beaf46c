"""The first lines of a report: which agent is kept, how it compares with others, and what training has changed."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ata_gym.bench.report.headline import ONE_SEED, SAID, beside, in_brackets, more_or_less
from ata_gym.bench.report.statistics import Estimate
from ata_gym.rl.learning.experiment import AGENT, END, PUBLISHED, START, names_in, values


def best_of(curve: pl.DataFrame) -> int:
    """The steps after which the agent was the best on the validation seeds, the first if there are several."""
    return int(curve["steps"][int(curve[curve.columns[1]].arg_min() or 0)])


def steps_of(curve: pl.DataFrame) -> dict[str, int]:
    """The steps of training that each agent on the test seeds had: the one that is kept, the first and the last."""
    return {AGENT: best_of(curve), START: 0, END: int(curve["steps"][-1])}


def lead(env: str, test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str]) -> str:
    """The agent that is kept, those at the start and at the end, and the ratio of these, by cost on the test seeds."""
    costs = {"cost": {name: values(test, name, "cost") for name in names_in(test)}}
    steps, seeds = steps_of(curve), len(costs["cost"][AGENT])
    words = {roles["uniform"]: SAID["uta"], **({PUBLISHED: SAID[PUBLISHED]} if env == "allocation" else {})}
    words |= {name: f"{name}, the {role}" for role, name in roles.items() if role != "uniform"}
    kept = f"after {steps[AGENT]:,} of {steps[END]:,} steps" if steps[AGENT] else "before training, after 0 steps"
    many = f", the best of {len(curve)} evaluations on the validation seeds" if len(curve) > 1 else ""
    uniform = {roles["uniform"]: SAID["uta"]}
    (start,), (end,) = (beside(costs, name, uniform) for name in (START, END))
    change = more_or_less(Estimate.of_ratio(costs["cost"][END], costs["cost"][START]), "cost")
    lines = [
        f"The agent that is kept is that {kept}{many}. On seeds that it never saw it has",
        *(f"  {line}" for line in beside(costs, AGENT, words)),
        "What training has changed, on the same seeds:",
        f"  the agent at the start, {start}",
        f"  the agent at the end, {end}",
        f"  the end beside the start: {change}",
    ]
    return "\n".join([ONE_SEED, *lines] if seeds == 1 else [*lines, in_brackets(seeds)])
