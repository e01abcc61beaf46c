"""How often the search for the shadow price moves it, and how far."""

from __future__ import annotations

import numpy as np
import pytest

from ata_policies.dispatch.margin import Workers
from ata_policies.dispatch.shadow import ShadowSearch

N, BUDGET = 12, 10
WORKERS = Workers.of(np.repeat(np.arange(1.0, N + 1.0)[:, None], 8, axis=1)[None], BUDGET)
"""Their times do not vary, so that all simulated rounds with a shadow price are alike."""


def moved(price: float, moves: int = 0, level: float | None = None) -> tuple[float, float]:
    """The binary logarithm of the shadow price before and after a move that comes after so many others."""
    search = ShadowSearch.start(1, N, price)._replace(moves=np.array([float(moves)]))
    before = float(search.level[0]) if level is None else level
    search = search._replace(level=np.array([before]))
    while search.moves == moves:
        search = search.go_on(WORKERS, BUDGET, price)
    return before, float(search.level[0])


def step_after(moves: int, price: float) -> float:
    """How far the shadow price goes then, from where the search starts."""
    before, after = moved(price, moves)
    return after - before


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


def test_the_shadow_price_stays_within_its_bounds() -> None:
    """A quarter and twice the price; without one, 3e-4 / useful workers and 1; and down two octaves at most."""
    price, useful = 0.05, int(WORKERS.useful[0])
    for level, bound in ((-9.0, price / 4), (1.0, 2 * price)):
        assert moved(price, level=level)[1] == pytest.approx(np.log2(bound))
    for level, bound in ((-30.0, 3e-4 / useful), (5.0, 1.0)):
        assert moved(0.0, level=level)[1] == pytest.approx(np.log2(bound))
    assert moved(0.0, level=-1.0)[1] == pytest.approx(-3.0)
