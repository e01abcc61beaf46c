"""Play ATA with three rules for scores of 0, and count the rounds in which a score is 0.

``python notebooks/scores_of_zero.py`` plays the published length of the CIFAR-100 figure, with the
constants of the preprint, as published: see ``reproduce-icml2025.ipynb``. ``--rounds`` and
``--seeds`` play less.
"""

from __future__ import annotations

import argparse
from typing import Any, ClassVar

import numpy as np

from ata_gym import bench
from ata_gym.bench.studies.paper.cifar100 import CIFAR100
from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Ints, Mask
from ata_policies import Setting
from ata_policies.allocation.composition import ComposedPolicy
from ata_policies.allocation.rules import Proxy, RoundContext, Scores

COUNTED: dict[str, Any] = {}
"""For each policy, the rounds of each seed in which a score was 0."""


class EvenSplit(Proxy):
    """Workers never tried first, then an even split: the rule of this project."""

    def allocate(self, scores: Scores, context: RoundContext) -> Ints:
        """Allocate, by ``among`` where a score is 0, and count these rounds."""
        zero = scores.score == 0.0
        some = zero.any(axis=1)
        name = type(self).__name__
        COUNTED[name] = some + (0 if context.round[0] == 1 else COUNTED[name])
        return np.where(some[:, None], self.among(zero, context), super().allocate(scores, context))

    def among(self, zero: Mask, context: RoundContext) -> Ints:
        """What workers get where some have a score of 0."""
        return Proxy().allocate(Scores(np.where(zero, 0.0, 1.0)), context)


class IndependentDraws(EvenSplit):
    """Each task goes to a worker drawn uniformly from those with a score of 0."""

    def among(self, zero: Mask, context: RoundContext) -> Ints:
        """Draw each task's worker."""
        draws = uniforms(context.keys, -(-context.budget // 8) * 8)[:, : context.budget]
        order = np.argsort(~zero, axis=1, kind="stable")
        count = np.maximum(zero.sum(axis=1), 1)
        drawn = np.take_along_axis(order, (draws * count[:, None]).astype(np.int64), axis=1)
        allocation = np.zeros(zero.shape, np.int64)
        np.add.at(allocation, (np.arange(len(zero))[:, None], drawn), 1)
        return allocation


class LowestIndex(EvenSplit):
    """All tasks go to the worker of the lowest index with a score of 0: here the fastest of
    them.
    """

    def among(self, zero: Mask, context: RoundContext) -> Ints:
        """Give everything to one worker."""
        allocation = np.zeros(zero.shape, np.int64)
        allocation[np.arange(len(zero)), zero.argmax(axis=1)] = context.budget
        return allocation


class Even(ComposedPolicy):
    """ATA with a rule."""

    kind: ClassVar[type[EvenSplit]] = EvenSplit

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, estimate="ata", seed=seed)
        self.rule = self.kind()


class Independent(Even):
    """ATA with independent draws."""

    kind = IndependentDraws


class Lowest(Even):
    """ATA with the lowest index."""

    kind = LowestIndex


def main() -> None:
    """Play, and print the ratios to OFTA and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=CIFAR100.rounds)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    policies = (Even, Independent, Lowest)
    results = bench.run(
        ["ofta", *policies],
        CIFAR100.scenario,
        rounds=given.rounds,
        seeds=given.seeds,
        jobs=1,
    )
    means = {(row["policy"], row["quantity"]): row["mean"] for row in results.table().to_dicts()}
    print(
        f"{given.rounds:,} rounds, {given.seeds} seeds  runtime / OFTA  worker time / OFTA  rounds"
        " with a score of 0",
    )
    for one in policies:
        ratios = (
            means[one.__name__, f"{quantity}/ofta"] for quantity in ("runtime", "total_worker_time")
        )
        runtime, work = ratios
        print(
            f"{one.kind.__name__:24}{runtime:15.3f}{work:20.3f}{int(COUNTED[one.kind.__name__].min()):26,}",
        )


if __name__ == "__main__":
    main()
