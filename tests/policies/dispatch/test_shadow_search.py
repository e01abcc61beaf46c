"""The search for the shadow price: what it finds, how often it moves, and how far."""

from __future__ import annotations

import numpy as np
import pytest

from ata_gym.pools import shifted_exponential
from ata_gym.theory.simulated.slices import known_sample
from ata_policies.dispatch.margin import Workers, by_margin
from ata_policies.dispatch.shadow import ShadowSearch
from tests.policies.dispatch.simulated import Rule, simulate_rules

N, BUDGET = 12, 10
POOL = shifted_exponential(np.arange(1.0, 9), np.arange(1.0, 9))
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


def test_the_search_leaves_out_who_was_forgotten_since_the_workers_were_ordered() -> None:
    workers, search = Workers.of(np.array([[[1.0, 2.0], [3.0, 4.0]]]), budget=4), ShadowSearch.start(1, 2, price=0.3)
    assert workers.order.tolist() == [[0, 1]]
    forgotten = workers._replace(mean=np.array([[np.inf, 3.5]]))
    nobody = search.go_on(forgotten._replace(useful=np.array([1])), budget=4, price=0.3)
    assert all(np.array_equal(before, after) for before, after in zip(search, nobody, strict=True))
    only_1 = forgotten._replace(order=np.array([[1, 0]]), useful=np.array([1]))
    both, one = (search.go_on(some, budget=4, price=0.3) for some in (forgotten, only_1))
    assert np.array_equal(both.totals, one.totals)
    assert both.turn == one.turn == 1


def searched(times: np.ndarray, budget: int, price: float, rounds: int = 640) -> tuple[Workers, ShadowSearch]:
    workers = Workers.of(times[None], budget)
    search = ShadowSearch.start(1, len(times), price)
    for _ in range(rounds):
        search = search.go_on(workers, budget, price)
    return workers, search


def test_the_search_finds_the_best_shadow_price() -> None:
    """Against the other simulation, which plays the env's own rounds."""
    times, price = known_sample(POOL, 32), 0.3
    workers, search = searched(times, 10, price)

    def rule(shadow: float) -> Rule:
        return lambda *at: by_margin(Workers(*(part[0] for part in workers)), np.array(shadow), *at)

    shadows = [*price * 2.0 ** np.arange(-2.0, 1.5, 0.5), *search.shadow()]
    total = simulate_rules(times, [rule(shadow) for shadow in shadows], 10, 256).total(price)
    assert total[-1] < 1.01 * total.min()


def test_the_search_leaves_useless_workers_out() -> None:
    slow = np.concatenate([np.full((2, 4), 1.0), np.full((30, 4), 1e6)])
    assert Workers.of(slow, 3).useful == 2
    shadows = [searched(times, 3, 0.1)[1].shadow() for times in (slow, slow[:2])]
    np.testing.assert_array_equal(*shadows)


@pytest.mark.parametrize(("price", "shadows"), [(0.2, [0.2 / np.sqrt(2.0), 0.2 * np.sqrt(2.0)]), (0.0, [0.0, 0.1 / 8])])
def test_simulated_rounds_are_those_of_the_env(price: float, shadows: list[float]) -> None:
    """Before the first move the search holds the costs of 31 rounds with each of two shadow prices."""
    times = known_sample(POOL, 32)
    workers, search = searched(times, 10, price, rounds=62)
    row = Workers(*(part[0] for part in workers))
    rules: list[Rule] = [lambda *at, c=c: by_margin(row, np.array(c), *at) for c in shadows]
    costs = simulate_rules(times, rules, 10, 512)
    np.testing.assert_allclose(search.totals[0, :, 0] / 31, costs.round_time, rtol=0.06)
    np.testing.assert_allclose(search.totals[0, :, 1] / 31, costs.worker_time, rtol=0.06)


def test_without_a_finite_distribution_the_search_stays() -> None:
    """Such estimates come of times that differ by hundreds of orders of magnitude."""
    _, search = searched(np.full((2, 4), np.inf), 3, 0.1, rounds=100)
    np.testing.assert_allclose(search.shadow(), 0.1)
