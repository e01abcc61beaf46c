"""Cards, each of which describes one scenario or policy; and the card of a scenario.

Terminals, reports and the API reference show them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.changes import Change, Redraw
from ata_gym.pools import Pool
from ata_gym.scenarios.scenario import AtaConstants, Published, Scenario
from ata_gym.typing import Floats
from ata_gym.utils.files.json_files import fields, text


class Card(NamedTuple):
    """The description of one scenario or policy."""

    name: str
    summary: str
    """One sentence."""
    facts: Mapping[str, str]
    """Facts by their names, in the order in which they are read."""
    text: str
    """Paragraphs with formulas below the facts; may be empty."""
    command: str
    """The command that tries it."""

    def to_data(self) -> dict[str, Any]:
        """Return the card as values that JSON can hold."""
        return {**self._asdict(), "facts": dict(self.facts)}


CARD = fields(
    {
        **dict.fromkeys(("name", "summary", "text", "command"), text),
        "facts": fields({}, other_fields=text),
    },
)
"""The rule by which data of ``Card.to_data`` are checked when they are read from a file."""


def scenario_card(scenario: Scenario) -> Card:
    """The card of a scenario with or without a name.

    Example:
        >>> from ata_gym.scenarios import scenario
        >>> scenario_card(scenario("five-workers")).facts["workers"]
        '5: exponential, mean times 2 to 12'
    """
    pool = scenario.pool
    mean = scenario.pool.mean()
    # recorded times may be 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = mean.max() / mean.min()
        spread = pool.sd() / mean
    # each family once, in the order of the workers
    families = ", ".join(dict.fromkeys(pool.families))
    drawn = ", drawn anew in each episode" if scenario.pool_distribution else ""
    if scenario.horizon is None:
        horizon = "no end"
    else:
        horizon = f"{scenario.horizon:,} rounds"
    facts = {
        "workers": f"{workers(scenario)}: {families}, {_range('mean time', mean)}{drawn}",
        "slowest / fastest": f"{ratio:.3g} by mean time",
        "spread": _range("standard deviation / mean", spread),
        "latency": _latency(pool),
        "budget B": f"{scenario.budget:,} results a round",
        "horizon": horizon,
        "price": f"{scenario.price:g} of worker time" + _unit_costs(scenario),
        "changes": "; ".join(map(_change, scenario.changes)) or "none: workers stay as they are",
        "published alpha, eta": _published(scenario.published),
        "source": scenario.source or "not told",
    }
    facts = {name: fact for name, fact in facts.items() if fact}
    name = scenario.name or "a scenario without a name"
    if scenario.summary:
        summary = f"{scenario.summary}."
    else:
        summary = ""
    command = (
        f"ata-gym bench --scenario {name} --policies uta,ata-icml,distribution-learner,ofta --out"
        f" results/{name}"
    )
    return Card(name, summary, facts, "", command)


def workers(scenario: Scenario) -> str:
    """The number of workers; where they are drawn anew, the fewest and the most: 3-16."""
    n = scenario.pool.n
    if scenario.pool_distribution:
        fewest = scenario.pool_distribution.fewest
    else:
        fewest = n
    if fewest == n:
        return str(n)
    return f"{fewest}-{n}"


def _latency(pool: Pool) -> str:
    if pool.latency is None:
        return ""
    families = ", ".join(dict.fromkeys(pool.latency.families))
    return (
        f"{families}, {_range('mean', pool.latency.mean())} a round, before a worker's first task"
    )


def _unit_costs(scenario: Scenario) -> str:
    costs = scenario.unit_costs
    if costs is None:
        return ""
    return f", of which a unit counts {min(costs):g} to {max(costs):g}, by worker"


def _change(change: Change) -> str:
    if not isinstance(change, Redraw):
        return str(change)
    text = "Redraw, workers drawn anew"
    if change.among:
        text += f", then one of {len(change.among)} kinds of change"
    return text


def _range(quantity: str, numbers: Floats) -> str:
    low = f"{numbers.min():.4g}"
    high = f"{numbers.max():.4g}"
    if low == high:
        return f"{quantity} {low}"
    return f"{quantity}s {low} to {high}"


def _published(published: Published) -> str:
    constants_by_version = [
        f"{', '.join(map(_number, constants))} ({version})"
        for version, constants in published._asdict().items()
        if constants != AtaConstants()
    ]
    return "; ".join(constants_by_version) or "none: policies take them from the pool"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}"
