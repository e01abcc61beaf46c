"""Workers that are drawn anew: the same for every policy, and each as often as announced."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from ata_gym.changes.change import Change, ChangeProcess, RoundContext
from ata_gym.changes.conditions import Conditions
from ata_gym.changes.faults import Crash, Spot
from ata_gym.changes.speeds import Load, OnOff, Outliers, Periodic, Walk
from ata_gym.changes.switches import Jump, Redraw, Switch
from ata_gym.pools import PoolDistribution
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import stream_keys
from tests.changes import test_changes
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, same

POOLS = PoolDistribution(5, families=("gamma", "uniform", "log-normal"), cv=(0.1, 0.8))
PADDED = replace(POOLS, fewest=1)
INSIDE: tuple[tuple[Change, ...], ...] = (
    (),
    (Switch(every=2),),
    (Walk(0.3, 0.5), Jump(at=3, workers=(1, 4), factor=0.2)),
    (OnOff(5, 0.2, 0.4),),
    (Spot(0.2, 0.5, deadline=3), Switch(every=3)),
    (Crash(0.2, within=2, away=2, deadline=1),),
)


def make_scenario(
    first: Redraw, *changes: Change, horizon: int | None = 4, **options: Any
) -> Scenario:
    return Scenario(first.pools, 6, horizon, (first, *changes), **options)  # type: ignore[arg-type]


def process(redraw: Redraw, rows: int, rounds: int) -> list[Conditions]:
    return test_changes.process(redraw.pools.catalogue, rows, rounds, [redraw], redraw.pools.n)


def act(env_id: str, n: int, budget: int, k: int) -> np.ndarray:
    if env_id == DISPATCH:
        return (np.arange(n) % (k + 1) == 0).astype(np.int64)
    if k == 0:
        return np.bincount(np.arange(budget) % n, minlength=n)
    return budget * (np.arange(n) == n - k)


def episodes(env_id: str, chosen: Scenario, policy: int, steps: int) -> list[Conditions]:
    env: Any = gym.make(env_id, scenario=chosen).unwrapped
    env.reset(seed=2)
    conditions = []
    for _ in range(steps):
        conditions.append(env.conditions())
        if env.step(act(env_id, env.n, env.budget, policy))[3]:
            env.reset()
    return conditions


@pytest.mark.parametrize(
    "changes",
    [(Redraw(POOLS, among=INSIDE),), (Redraw(PADDED, (0.1, 2.0), every=2), Walk(0.1, 1.0))],
)
def test_the_seed_decides_whatever_the_policy_and_the_id(changes: tuple[Change, ...]) -> None:
    chosen = make_scenario(*changes)
    conditions = episodes(ALLOCATION, chosen, 0, 9)
    for env_id in IDS:
        if env_id == DISPATCH:
            stride = chosen.budget
        else:
            stride = 1
        other_conditions = episodes(env_id, chosen, 1, 9 * stride)[::stride]
        assert all(
            same(expected._asdict(), result._asdict())
            for expected, result in zip(conditions, other_conditions, strict=True)
        )


def test_a_new_episode_has_new_workers() -> None:
    factors = [
        condition.factor[0]
        for condition in episodes(ALLOCATION, make_scenario(Redraw(POOLS), horizon=2), 0, 12)
    ]
    assert len(np.unique(factors, axis=0)) == 6
    assert all((factors[k] == factors[k + 1]).all() for k in range(0, 12, 2))


def test_workers_are_drawn_again_every_so_many_rounds() -> None:
    factors = [c.factor for c in process(Redraw(POOLS, every=3), rows=50, rounds=10)]
    for k in range(1, 10):
        assert (
            (factors[k] != factors[k - 1]).all()
            if k % 3 == 0
            else (factors[k] == factors[k - 1]).all()
        )
    assert (process(Redraw(POOLS), rows=50, rounds=1)[0].factor == factors[0]).all()


def test_each_list_is_drawn_as_often() -> None:
    lists = (
        (),
        (Jump(0, (0,), 0.5),),
        (Jump(0, (1,), 0.5),),
        (Jump(0, (2,), 0.5), Jump(0, (3,), 4.0)),
    )
    plain, times = (
        process(Redraw(POOLS, among=among), 3_000, 1)[0].factor for among in ((), lists)
    )
    patterns = np.array([[1, 1, 1, 1, 1], [0.5, 1, 1, 1, 1], [1, 0.5, 1, 1, 1], [1, 1, 0.5, 4, 1]])
    counts = [int(np.isclose(times / plain, pattern).all(axis=1).sum()) for pattern in patterns]
    assert sum(counts) == 3_000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_drawn_list_does_what_its_changes_do_alone() -> None:
    """The conditions are, bit for bit, the same as with the changes by themselves, on the same
    random numbers.
    """
    rows = 240
    rounds = 8
    n = POOLS.n
    redraw = Redraw(POOLS, among=INSIDE)
    keys = stream_keys(0, rows)
    zero = np.zeros(rows, np.int64)
    together = process(redraw, rows, rounds)
    plain = process(Redraw(POOLS), rows, rounds)
    lists = redraw.first_memory(RoundContext(keys, zero, zero, 0, n))[:, 4, 0]
    place = 1000
    for k, changes in enumerate(INSIDE):
        chosen_rows = lists == k
        memories = {}
        assert 20 < chosen_rows.sum() < rows - 20
        for round in range(rounds):
            expected = plain[round]
            for j, change in enumerate(changes):
                context = RoundContext(keys, zero, zero + round, place + j, n)
                if round:
                    memories[j] = change.next_memory(context, memories[j])
                else:
                    memories[j] = change.first_memory(context)
                expected = change.apply(expected, memories[j])
            expected = expected.with_survivor()
            for name in ("distribution", "factor", "death_time"):
                assert (
                    getattr(together[round], name)[chosen_rows]
                    == getattr(expected, name)[chosen_rows]
                ).all()
            assert not k or not same(expected._asdict(), plain[round]._asdict()) or round < 2
        place += len(changes)
        deadlines = np.broadcast_to(together[0].deadline, rows)[chosen_rows]
        assert (deadlines == {4: 3.0, 5: 1.0}.get(k, 0.0)).all()


WALK = Walk(0.3, 0.5)
SWAP = Switch(every=2)
SLOW = OnOff(5, 0.2, 0.4)
MOVING: tuple[Change, ...] = (
    Switch(at=(1, 4), permutation=(1, 2, 3, 4, 0)),
    Jump(at=2, workers=(1, 3), factor=0.05, until=5),
    *(Periodic(7, 0.5), Spot(0.2, 0.5), Crash(0.3, within=2, away=2)),
)


@pytest.mark.parametrize(
    ("inner_changes", "later_changes"),
    [
        *(((change,), ()) for change in MOVING),
        *(
            ((), (change,))
            for change in (*MOVING, Outliers(0.05, 10, 30), Load(0.5, 0.3, 0.2, 0.9))
        ),
        *(
            ((WALK, SWAP), ()),
            ((SWAP, WALK), ()),
            ((WALK,), (SWAP,)),
            ((SWAP,), (WALK,)),
            ((), (WALK, SWAP)),
        ),
        *(((SWAP, WALK), (Switch(at=(3,)),)), ((SWAP, SLOW, Switch(every=3)), ()), ((), (SLOW,))),
    ],
)
def test_means_move_as_those_of_a_pool_do(
    inner_changes: tuple[Change, ...],
    later_changes: tuple[Change, ...],
) -> None:
    rows = 20
    n = POOLS.n
    moved = False
    redraw = Redraw(POOLS, among=(inner_changes,))
    keys = stream_keys(0, rows)
    zero = np.zeros(rows, np.int64)
    followed = ChangeProcess(POOLS.catalogue, [redraw, *later_changes], rows, n)
    followed.start_episode(slice(None), keys, zero, zero)
    place = followed.memories[0][:, 0].astype(np.int64)
    drawn = followed.memories[0][:, 1]
    median = POOLS.catalogue.median()[place] * drawn
    for k in range(8):
        if k:
            followed.next_round(None, keys, zero, zero + k, None)
        start = 5
        alone = Conditions.unchanged(zero + k, n)
        for change in inner_changes:
            alone = change.apply(alone, followed.memories[0][:, start : start + change.slots])
            start += change.slots
        for change, memory in zip(later_changes, followed.memories[1:], strict=True):
            alone = change.apply(alone, memory)
        usual = (1 - alone.share) * drawn + alone.share * (alone.low + alone.high) / 2 * median
        expected = np.take_along_axis(usual, alone.distribution, axis=1) * alone.factor
        expected = np.where(alone.with_survivor().death_time == 0, np.inf, expected)
        means = followed.conditions.means(POOLS.catalogue)
        np.testing.assert_allclose(means, expected, rtol=1e-13)
        moved |= bool((means != drawn).mean() > 0.1)
    assert moved


def test_workers_exchange_nothing_with_empty_places() -> None:
    conditions = process(Redraw(PADDED, among=((Switch(every=1),),)), rows=100, rounds=3)
    means = [condition.means(POOLS.catalogue) for condition in conditions]
    assert (conditions[0].present == conditions[2].present).all()  # type: ignore[union-attr]
    assert len(np.unique(conditions[0].present.sum(axis=1))) == 5  # type: ignore[union-attr]
    for after in means[1:]:
        assert (
            np.sort(after, axis=1) == np.sort(means[0], axis=1)
        ).all()  # infinite where a place is empty
    assert (means[1] != means[0])[np.isfinite(means[0])].mean() > 0.4


@pytest.mark.parametrize(("low", "high"), [(0.05, 2.0), (0.0, 0.5), (0.3, 0.3)])
def test_the_drawn_price_enters_the_reward(low: float, high: float) -> None:
    chosen = make_scenario(Redraw(POOLS, price=(low, high)), horizon=None, price=7.0)
    env: Any = gym.make_vec(ALLOCATION, num_envs=600, scenario=chosen)
    env.reset(seed=0)
    drawn = env.conditions().price
    for _ in range(2):  # the same in all rounds
        _, reward, _, _, info = env.step(np.tile(act(ALLOCATION, 5, 6, 0), (600, 1)))
        assert (-reward - info["round_time"]) / info["worker_time"] == pytest.approx(
            drawn,
            abs=1e-9,
        )
    if low == high:
        assert drawn == pytest.approx(low)
    else:
        if low == 0:
            part = drawn / high
        else:
            part = np.log(drawn / low) / np.log(high / low)
        assert stats.kstest(part, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("env_id", IDS)
def test_empty_places_get_no_task(env_id: str) -> None:
    chosen = make_scenario(Redraw(PADDED), horizon=3)
    env: Any = gym.make_vec(env_id, num_envs=15, scenario=chosen, autoreset_mode="SameStep")
    (observation, _), counts = env.reset(seed=0), set()
    for _ in range(6 * (chosen.budget if env_id == DISPATCH else 1)):
        present = observation["present"].astype(bool)
        counts |= set(present.sum(axis=1).tolist())
        assert observation["present"].dtype == np.int8
        assert (np.isinf(env.means()) == ~present).all()
        assert (env.conditions().present == present).all()
        # the last place gets all, where it is not dispatch
        asked = np.tile(
            act(env_id, 5, 6, 1),
            (15, 1),
        )
        observation, _, _, truncated, info = env.step(asked)
        worker = observation["worker"][~truncated]
        assert np.take_along_axis(
            present[~truncated],
            worker,
            axis=1,
        ).all()  # all results came, from who is there
        assert (worker >= 0).all()
        assert (info["round_time"][~truncated] > 0).all()
    assert counts == {1, 2, 3, 4, 5}
