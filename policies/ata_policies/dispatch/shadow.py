"""The search for the shadow price with which the rule ``by_margin`` costs least."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.ranges import Counts, Times, Within
from ata_policies.dispatch.margin import PAIRS, search_step
from ata_policies.dispatch.rules import Workers


class ShadowSearch(NamedTuple):
    """Where the search is, in E rows: a stochastic approximation, one simulated round at a time.

    Two shadow prices are compared by 32 simulated rounds each, on the same task times. With a price p of worker time
    they are sqrt 2 apart, around the present one, which moves to the one of less cost C, by

        (C_low - C_high) / (p |W_low - W_high| + |T_low - T_high|)

    times a step, where T and W are round time and worker time. It stays between p / 4 and 2 p. At price 0 the present
    one is compared with 0, where everybody works, in time T_0 and W_0, and moves by the step times

        min((1 - W / W_0) / 0.3, 1) - (T / T_0 - 1) / 0.003,

    at least -2: so rounds get longer by 0.3 % if that saves 30 % of the worker time, and by less if it saves less. The
    step is one octave for 6 moves, and falls to a sixth (Robbins and Monro, 1951; Kiefer and Wolfowitz, 1952). A
    simulated round has at most 8,000 workers times results: of more workers, and of the results, every k-th stands for
    k. Ours.
    """

    level: Annotated[Floats, Within(-1080.0, 1023.0)]
    """(E,) the binary logarithm of the shadow price"""
    moves: Counts
    """(E,) how often it moved"""
    turn: Annotated[Ints, Within(0, 2 * PAIRS - 1)]
    """(E,) rounds that were simulated since then"""
    totals: Times
    """(E, 2, 2) their round times and worker times added up, with each of the two shadow prices"""

    @classmethod
    def start(cls, rows: int, n: int, price: float) -> ShadowSearch:
        """From the price itself; or, where worker time has no price, from 0.1 / n."""
        level = math.log2(price if price > 0.0 else 0.1 / n)
        return cls(np.full(rows, level), np.zeros(rows), np.zeros(rows, np.int64), np.zeros((rows, 2, 2)))

    def go_on(self, workers: Workers, budget: int, price: float, awake: Mask | bool = True) -> ShadowSearch:
        """Simulate one round more in the rows that are ``awake``, (E,)."""
        return ShadowSearch(*search_step(*workers, budget, price, awake, *self))

    def shadow(self) -> Floats:
        """The shadow prices, (E,)."""
        return np.asarray(2.0**self.level)
