"""``python -m docs.policy_costs``: print the table of ``policies/all.md``.

The costs of decisions in it are measured.

With ``--recommended`` the table of ``policies/README.md`` is printed in its place. With ``--picture
FILE.png`` the decisions of some policies are timed with 10 to a million workers, drawn, and
printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ata_policies
from ata_gym.bench.decision_cost import (
    FIRST_ROUNDS,
    TimedPolicy,
    decision_times,
    exponential_workers,
)
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.scenarios.card import Card
from ata_policies.card import policy_card
from ata_policies.registry import RECOMMENDED

SETUP = (  # what is played while costs are compared with ATA's
    "8 rows of 51 workers, B = 23, price 0.1"
)
_REFERENCE = "ata"
_CHUNK = 20
_FACTS = ("source", "must know beforehand", "assumes", "constants")  # of a card, that the table has
_DRAWN = ("ata", "ata-empirical", "distribution-learner", "restarting-beta")
_SIZES = tuple(10**k for k in range(1, 7))  # numbers of workers
_BUDGET = 23
# the slope is fitted from so many workers on: with fewer, what every decision costs hides it
_LARGE = 10_000


class RelativeCosts(NamedTuple):
    """Processor time of a policy's predictions over the time of ATA's, in ``SETUP``."""

    first: float
    """In the first 100 rounds of icml2025-cifar100, where a learner has most to decide."""
    steady: float
    """In its first 2,000."""
    changing: float
    """In the first 500 of changing-walk, whose speeds never stay."""


def relative_costs(name: str, steady: int = 2_000, changing: int = 500) -> RelativeCosts:
    """Return the costs of a policy over ATA's, measured in turns."""
    return RelativeCosts(
        *_ratios(name, "icml2025-cifar100", FIRST_ROUNDS, steady),
        *_ratios(name, "changing-walk", changing),
    )


def _ratios(name: str, scenario: str, *rounds: int) -> list[float]:
    setup = Experiment.on_scenario(scenario, rounds=rounds[-1], seeds=8, price=0.1)
    for warm in (name, _REFERENCE):  # compiles
        TimedPolicy(warm, setup).play(_CHUNK)
    timed = TimedPolicy(name, setup)
    reference = TimedPolicy(_REFERENCE, setup)
    quotients = []
    for start, end in pairwise((0, *rounds)):
        for first in range(start, end, _CHUNK):
            for policy in (timed, reference):
                policy.play(min(_CHUNK, end - first))
        quotients.append(sum(timed.seconds) / sum(reference.seconds))
    return quotients


def table(cards: Iterable[Card], costs: Mapping[str, Sequence[float]]) -> str:
    """The policies in Markdown, with their processor time over ATA's (``relative_costs``)."""
    rows = []
    for card in cards:
        facts = (
            card.name,
            card.facts["plays"].partition(",")[0],
            *(card.facts.get(fact, "") for fact in _FACTS),
        )
        rows.append(
            [
                *(fact.replace("|", r"\|") for fact in facts),
                *(f"{cost:.1f}" for cost in costs[card.name]),
            ],
        )
    titles = ("policy", "plays", *_FACTS, "cost: first 100", "steady", "changing")
    first, *others = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return "\n".join([first, "|" + "---|" * len(titles), *others])


def recommended() -> str:
    """The recommended policies in Markdown: whom each is for, what it does and must know."""
    rows = []
    for group in RECOMMENDED:
        for name, purpose in group.items():
            card = policy_card(name)
            facts = (card.facts["must know beforehand"], card.facts["looks at the price"])
            summary = " ".join(card.summary.split())
            rows.append((f"`{name}`", purpose, summary, *facts))
    titles = ("policy", "you", "what it does", "must know beforehand", "looks at the price")
    first, *others = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return "\n".join([first, "|" + "---|" * len(titles), *others])


def draw(names: Sequence[str], sizes: Sequence[int], picture: Path) -> dict[str, list[float]]:
    """Draw the mean milliseconds of a decision by the number of workers.

    Return them, and last the slope.
    """
    large = np.array(sizes) >= _LARGE
    milliseconds = {}
    for name in names:
        times = [
            decision_times(name, exponential_workers(n, _BUDGET), FIRST_ROUNDS).mean for n in sizes
        ]
        milliseconds[name] = [
            *times,
            float(np.polyfit(np.log(sizes)[large], np.log(times)[large], 1)[0]),
        ]
    with style.figure(6.5, 3.8) as drawn:
        axes = drawn.subplots()
        top = max(numbers[-2] for numbers in milliseconds.values())
        for name, look in style.lines(names).items():
            label = f"{name}: slope {milliseconds[name][-1]:.2f}"
            axes.plot(sizes, milliseconds[name][:-1], label=label, **look)
        axes.plot(sizes[-2:], [0.3 * top, 3 * top], color="black", linewidth=0.8, label="linear")
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="milliseconds of a decision")
        style.plain_numbers(axes)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend()
        style.save(
            drawn,
            picture.with_suffix(""),
            f"A decision, mean of the first {FIRST_ROUNDS} rounds, B = {_BUDGET}",
        )
    return milliseconds


def main() -> None:
    """Measure one policy after the other, and print the table; or draw the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.policy_costs",
        description="What decisions cost.",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.png",
        help="draw some policies against n in its place",
    )
    parser.add_argument(
        "--recommended",
        action="store_true",
        help="print the table of the recommended policies in its place",
    )
    arguments = parser.parse_args()
    if arguments.recommended:
        print(recommended())
        return
    if (picture := arguments.picture) is not None:
        for name, numbers in draw(_DRAWN, _SIZES, picture).items():
            print(
                f"{name}: {', '.join(f'{ms:.3g}' for ms in numbers[:-1])} ms; slope"
                f" {numbers[-1]:.2f}",
            )
        return
    costs: dict[str, Sequence[float]] = {}
    with progress_bars({"cost": len(ata_policies.names())}) as progress:
        for name in ata_policies.names():
            costs[name] = relative_costs(name)
            progress("cost", len(costs))
    print(table(map(policy_card, ata_policies.names()), costs))


if __name__ == "__main__":
    main()
