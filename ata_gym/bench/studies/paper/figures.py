"""The published figures that can be reproduced, and their usual sizes."""

from typing import NamedTuple

CIFAR100 = "icml2025-cifar100"
QUADRATIC = "icml2025-quadratic"
REGRET = "icml2025-regret"
MIXED = "icml2025-mixed"
PRIOR = "icml2025-prior"
MOTIVATION = "icml2025-motivation"

PUBLISHED_POLICIES = ("gta", "ofta", "ata-empirical", "ata", "uta")
"""The five policies of the published figures."""


class Figure(NamedTuple):
    """What is usual for a figure."""

    rounds: int
    seeds: int = 8
    options: tuple[str, ...] = ()
    """The arguments that only this figure has."""


FIGURES = {
    # the published number of rounds
    CIFAR100: Figure(750_000, options=("train", "data", "device", "loss_curve", "published")),
    # a tenth of the published rounds, in which the policies begin to learn for all sizes
    QUADRATIC: Figure(300_000, options=("sizes", "growth")),
    # A quarter of the published rounds: the regret grows as ln K for more than two decades of them.
    # The slope of Thompson sampling is noisy, and so many rows hardly take longer than a few.
    REGRET: Figure(1_000_000, seeds=32),
    MIXED: Figure(50_000),
    PRIOR: Figure(100_000),
    MOTIVATION: Figure(1_000),
}
"""The figures by name."""

SIZES = {QUADRATIC: (17, 51, 153), MIXED: (15, 45, 150)}
"""The numbers of workers of the figures that have several."""
