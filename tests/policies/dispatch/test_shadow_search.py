"""How often the search for the shadow price moves it, and how far."""

from __future__ import annotations

import numpy as np
import pytest

from ata_policies.dispatch.rules import Workers
from ata_policies.dispatch.shadow import ShadowSearch

N, BUDGET = 12, 10
WORKERS = Workers.of(np.repeat(np.arange(1.0, N + 1.0)[:, None], 8, axis=1)[None], BUDGET)
"""Their times do not vary, so that all simulated rounds with a shadow price are alike."""


def step_after(moves: int, price: float) -> float:
    """How far the shadow price goes at a move after so many others, from where the search starts."""
    start = ShadowSearch.start(1, N, price)._replace(moves=np.array([float(moves)]))
    moved = start
    while moved.moves == moves:
        moved = moved.go_on(WORKERS, BUDGET, price)
    return float(moved.level[0] - start.level[0])


@pytest.mark.parametrize("price", [0.0, 0.05])
def test_steps_are_of_full_size_six_times_and_fall_to_a_sixth(price: float) -> None:
    first = step_after(0, price)
    assert 0.0 < abs(first) < 2.0
    steps = np.array([step_after(moves, price) / first for moves in range(30)])
    np.testing.assert_allclose(steps[:7], 1.0, rtol=1e-12)
    assert (np.diff(steps[6:22]) < 0.0).all()
    np.testing.assert_allclose(steps[[9, 12]], [1 / 2, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(steps[21:], 1 / 6, rtol=1e-12)


def test_the_price_moves_after_32_rounds_with_each_of_two() -> None:
    search, moves = ShadowSearch.start(1, N, 0.05), []
    for _ in range(192):
        search = search.go_on(WORKERS, BUDGET, 0.05)
        moves.append(int(search.moves[0]))
        assert search.turn == len(moves) % 64
    assert moves == [0] * 63 + [1] * 64 + [2] * 64 + [3]
