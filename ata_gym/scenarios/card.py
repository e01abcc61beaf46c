"""Cards, which describe one scenario or policy for terminals, reports and the API reference; and that of a scenario."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ata_gym.changes import Change, Redraw
from ata_gym.scenarios.scenario import AtaConstants, Published, Scenario
from ata_gym.typing import Floats
from ata_gym.utils.json_files import fields, text


class Card(NamedTuple):
    """The description of one scenario or policy."""

    name: str
    summary: str  # one sentence
    facts: Mapping[str, str]  # facts by their names, in the order in which they are read
    text: str  # paragraphs with formulas below the facts; may be empty
    command: str  # the command that tries it

    def to_data(self) -> dict[str, Any]:
        """Return the card as values that JSON can hold."""
        return {**self._asdict(), "facts": dict(self.facts)}


CARD = fields({**dict.fromkeys(("name", "summary", "text", "command"), text), "facts": fields({}, others=text)})
"""The rule of what ``Card.to_data`` gives, where it is read from a file."""


def scenario_card(scenario: Scenario) -> Card:
    """The card of a scenario with or without a name.

    >>> from ata_gym.scenarios import scenario
    >>> scenario_card(scenario("five-workers")).facts["workers"]
    '5: exponential, mean times 2 to 12'
    """
    pool, mean = scenario.pool, scenario.pool.mean()
    with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
        ratio, spread = mean.max() / mean.min(), pool.sd() / mean
    families = ", ".join(dict.fromkeys(pool.families))
    drawn = ", drawn anew in each episode" * bool(scenario.drawn)
    facts = {
        "workers": f"{workers(scenario)}: {families}, {_range('mean time', mean)}{drawn}",
        "slowest / fastest": f"{ratio:.3g} by mean time", "spread": _range("standard deviation / mean", spread),
        "budget B": f"{scenario.budget:,} results a round",
        "horizon": "no end" if scenario.horizon is None else f"{scenario.horizon:,} rounds",
        "price": f"{scenario.price:g} of worker time" + _unit_costs(scenario),
        "changes": "; ".join(map(_change, scenario.changes)) or "none: workers stay as they are",
        "published alpha, eta": _published(scenario.published), "source": scenario.source or "not told",
    }  # fmt: skip
    name = scenario.name or "a scenario without a name"
    command = f"ata-gym bench --scenario {name} --policies uta,ata-icml,distribution-learner,ofta --out results/{name}"
    return Card(name, f"{scenario.summary}." if scenario.summary else "", facts, "", command)


def workers(scenario: Scenario) -> str:
    """How many workers there are; where they are drawn anew, the fewest and the most, such as 3-16."""
    n = scenario.pool.n
    fewest = scenario.drawn.fewest if scenario.drawn else n
    return str(n) if fewest == n else f"{fewest}-{n}"


def _unit_costs(scenario: Scenario) -> str:
    costs = scenario.unit_costs
    return "" if costs is None else f", of which a unit counts {min(costs):g} to {max(costs):g}, by worker"


def _change(change: Change) -> str:
    if isinstance(change, Redraw):
        return "Redraw, workers drawn anew" + f", then one of {len(change.among)} kinds of change" * bool(change.among)
    return str(change)


def _range(what: str, numbers: Floats) -> str:
    low, high = f"{numbers.min():.4g}", f"{numbers.max():.4g}"
    return f"{what} {low}" if low == high else f"{what}s {low} to {high}"


def _published(published: Published) -> str:
    constants_by_version = [
        f"{', '.join('none' if value is None else f'{value:.6g}' for value in constants)} ({version})"
        for version, constants in published._asdict().items()
        if constants != AtaConstants()
    ]
    return "; ".join(constants_by_version) or "none: policies take them from the pool"
