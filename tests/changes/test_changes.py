"""Each change: what it does to distributions, speeds and noise, against formulas and statistics on
many rows.
"""

import hashlib
import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.special import ndtri

from ata_gym.changes import change_from_data, checked_changes
from ata_gym.changes.change import Change, ChangeProcess
from ata_gym.changes.conditions import Conditions
from ata_gym.changes.faults import Crash, Spot
from ata_gym.changes.load import ShareTime
from ata_gym.changes.speeds import Congestion, Correlated, Load, OnOff, Outliers, Periodic, Walk
from ata_gym.changes.switches import Jump, Redraw, Switch
from ata_gym.pools import (
    Pool,
    PoolDistribution,
    deterministic,
    exponential,
    gamma,
    log_normal,
    trace,
)
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import stream_keys
from ata_gym.typing import Floats
from tests.envs.playing import ALLOCATION, CHANGES as PLAYED, SCENARIOS

POOL = SCENARIOS["changing"].pool
N = POOL.n
CHANGES: list[Change] = [
    Switch(every=3),
    Switch(at=(2, 5), permutation=(1, 2, 3, 4, 0)),
    Jump(at=2, workers=(1, 3), factor=0.05, until=4),
    *PLAYED[2:],
]


def vector(pool: Pool, rows: int, **options: Any) -> Any:
    return gym.make_vec(ALLOCATION, num_envs=rows, **{"pool": pool, "budget": 1, **options})


def process(
    catalogue: Pool,
    rows: int,
    rounds: int,
    changes: Sequence[Change],
    n: int = 0,
) -> list[Conditions]:
    n = n or catalogue.n
    keys = stream_keys(0, rows)
    zero = np.zeros(rows, np.int64)
    followed = ChangeProcess(catalogue, changes, rows, n)
    followed.start_episode(slice(None), keys, zero, zero)
    conditions = [followed.conditions]
    for k in range(1, rounds):
        followed.next_round(None, keys, zero, zero + k, None)
        conditions.append(followed.conditions)
    return conditions


@pytest.mark.parametrize("change", CHANGES)
def test_means_are_exact_at_each_round(change: Change) -> None:
    """By the distribution of large numbers over rows, each with one task; under faults, for whoever
    lives.
    """
    rows = 1_500
    pool = (
        exponential([1.0, 2.0], shift=[0.5, 0.0])
        + gamma(2.5, 0.7)
        + log_normal(0.1, 0.8)
        + deterministic([3.0]).with_latency(1.0)
    )
    row = np.arange(rows)
    worker = np.arange(rows) % N
    env = vector(pool, rows, changes=[change])
    env.reset(seed=0)
    for k in range(5):
        means = env.unwrapped.means()
        conditions = env.unwrapped.conditions()
        assert means.shape == (rows, N)
        action = np.zeros((rows, N), np.int64)
        action[row, worker] = 1
        ratios = env.step(action)[0]["duration"][:, 0] / means[row, worker]
        for i in range(N):
            worker_ratios = ratios[(conditions.death_time[row, worker] == np.inf) & (worker == i)]
            assert (
                abs(worker_ratios.mean() - 1)
                <= 5 * worker_ratios.std() / len(worker_ratios) ** 0.5 + 1e-12
            ), (k, i)


@pytest.mark.parametrize(
    "changes",
    [(), (Switch(every=2), Jump(3, (0,), 4.0), Outliers(0.1, 10, 20))],
)
def test_means_on_a_trace_by_round_are_the_times_of_the_round(changes: tuple[Change, ...]) -> None:
    record = [[1.0, 5.0, 2.0], [4.0, 3.0, 8.0, 6.0]]
    plain = trace([[1.0, 5.0]]) + trace(record, replay="round") + exponential([7.0])
    env = vector(plain, 3, changes=[*changes])
    env.reset(seed=0)
    if changes:
        outliers = 0.1 * 15 * plain.median()
    else:
        outliers = 0
    for k in range(9):
        pool_means = (
            np.array([3.0, record[0][k % 3], record[1][k % 4], 7.0]) * (0.9 if changes else 1)
            + outliers
        )
        conditions = env.unwrapped.conditions()
        assert conditions.round.tolist() == [k] * 3
        np.testing.assert_allclose(
            env.unwrapped.means(),
            pool_means[conditions.distribution] * conditions.factor,
        )
        times = env.step(np.tile([0, 1, 0, 0], (3, 1)))[0]["duration"][:, 0]
        for e in range(3):
            if not changes or (conditions.distribution[e, 1] in (1, 2) and times[e] < 32):
                assert (
                    times[e]
                    == record[conditions.distribution[e, 1] - 1][
                        k % (2 + conditions.distribution[e, 1])
                    ]
                )


def test_the_pool_of_a_round() -> None:
    before, after = process(
        POOL,
        2,
        2,
        [Switch(at=(1,), permutation=(4, 0, 3, 1, 2)), Jump(1, (0, 3), 0.5)],
    )
    assert before.row(1).pool(POOL) == POOL
    round_pool = after.row(1).pool(POOL)
    np.testing.assert_allclose(round_pool.mean(), after.means(POOL)[1])
    assert round_pool.families == tuple(POOL.families[i] for i in (4, 0, 3, 1, 2))
    assert round_pool.record(2).tolist() == [1.0, 5.0, 2.0]
    replayed = trace([[1.0, 5.0, 2.0], [4.0, 3.0, 8.0]], replay="round")
    point = process(replayed, 1, 3, [Switch(at=(1,), permutation=(1, 0))])[2].row(0).pool(replayed)
    assert (point.mean().tolist(), point.sd().tolist()) == ([8.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="one row"):
        after.pool(POOL)
    with pytest.raises(ValueError, match="outliers"):
        process(POOL, 1, 1, [Outliers(0.1, 2, 3)])[0].row(0).pool(POOL)


def test_a_switch_deals_out_all_distributions_anew() -> None:
    conditions = process(POOL, 600, 13, [Switch(every=4)])
    distributions = np.array([condition.distribution for condition in conditions])
    assert (distributions[:4] == np.arange(N)).all()
    assert (np.sort(distributions, axis=2) == np.arange(N)).all()
    for k in range(1, 13):
        assert (distributions[k] == distributions[k - 1]).all() == (k % 4 != 0)
    for start in (4, 8, 12):  # each worker gets each distribution as often: a uniform permutation
        table = np.array([np.bincount(distributions[start][:, i], minlength=N) for i in range(N)])
        assert stats.chisquare(table.ravel(), ddof=2 * N - 2).pvalue > 1e-3
    assert len(np.unique(distributions[4], axis=0)) > 100


def test_a_jump_comes_and_goes() -> None:
    conditions = process(POOL, 1, 6, [Jump(2, (1,), 0.05, until=4), Jump(3, (1, 2), 4.0)])
    factors = [condition.factor[0].tolist() for condition in conditions]
    assert factors == [[1.0] * N] * 2 + [
        [1.0, 0.05, 1.0, 1.0, 1.0],
        [1.0, 0.2, 4.0, 1.0, 1.0],
        [1.0, 4.0, 4.0, 1.0, 1.0],
        [1.0, 4.0, 4.0, 1.0, 1.0],
    ]


def test_a_period() -> None:
    for apart in (0.0, 1.0):
        conditions = process(POOL, 2, 17, [Periodic(8, 0.5, apart)])
        factors = np.array([condition.factor[0] for condition in conditions])
        np.testing.assert_allclose(factors[:9], factors[8:], atol=1e-12)
        np.testing.assert_allclose(factors[:8].mean(axis=0), 1.0)
        spread = apart * np.ptp(np.cos(2 * np.pi * np.arange(N) / N)) / 2
        assert np.ptp(factors[2]) == pytest.approx(spread)
    assert factors[2][0] == 1.5


def test_a_walk_stays_in_bounds_and_fills_them() -> None:
    conditions = process(POOL, 300, 60, [Walk(0.3, 0.5)])
    logs = np.log([condition.factor for condition in conditions])
    assert (logs[0] == 0).all()
    assert (abs(logs) <= 0.5 + 1e-12).all()
    assert (abs(np.diff(logs, axis=0)) <= 0.3 + 1e-12).all()
    # the reflected walk's
    assert stats.kstest(logs[-1].ravel(), stats.uniform(-0.5, 1).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(logs[-1].T)[np.triu_indices(N, 1)]).max() < 0.25  # workers walk apart


def test_correlated_noise_keeps_the_distribution_and_lasts() -> None:
    change = Correlated(0.6, 0.8)
    rows = 400
    rounds = 40
    for pool in (exponential([1.0, 2.0], 0.5), gamma(2.5, [0.7, 1.0])):
        env = vector(pool, rows, budget=4, changes=[change])
        env.reset(seed=0)
        times = np.array([env.step(np.full((rows, 2), 2))[0]["duration"] for _ in range(rounds)])
        if pool.families[0] == "exponential":
            distribution = stats.expon(0.5, 1.0)
        else:
            distribution = stats.gamma(2.5, scale=0.7)
        for k in (0, rounds - 1):
            assert stats.kstest(times[k][:, 0], distribution.cdf).pvalue > 1e-3
        normal = ndtri(distribution.cdf(times[:, :, :2]))
        for lag in range(4):  # two different tasks of worker 0, so many rounds apart
            pair = normal[: rounds - lag, :, 0].ravel(), normal[lag:, :, 1].ravel()
            np.testing.assert_allclose(np.corrcoef(*pair)[0, 1], 0.6 * 0.8**lag, atol=0.03)
        other = stats.rankdata(times[:, :, 0].ravel()), stats.rankdata(times[:, :, 2].ravel())
        assert abs(np.corrcoef(*other)[0, 1]) < 0.03  # of two workers


def test_outliers_have_their_share_and_length() -> None:
    share = 0.03
    rows = 500
    pool = deterministic(2.0) + exponential(1.0) + trace([[1.0, 4.0, 2.0]]) + gamma(3.0, 1.0)
    plain = vector(pool, rows, budget=400)
    wild = vector(pool, rows, budget=400, changes=[Outliers(share, 30, 40)])
    both = [
        env.reset(seed=0) and env.step(np.full((rows, 4), 100))[0]["duration"]
        for env in (plain, wild)
    ]
    (before, after), median = (
        (times.reshape(rows, 4, 100) for times in both),
        pool.median()[:, None],
    )
    out = after > 29 * median
    error = 4 * (share / (rows * 100)) ** 0.5
    assert (abs(out.mean(axis=(0, 2)) - share) < error).all()
    for i in range(4):
        sizes = (after[:, i] / median[i])[out[:, i]]
        assert stats.kstest(sizes, stats.uniform(30, 10).cdf).pvalue > 1e-3
    assert stats.kstest(after[:, 1][~out[:, 1]], stats.expon.cdf).pvalue > 1e-3
    assert stats.kstest(after[:, 3][~out[:, 3]], stats.gamma(3.0).cdf).pvalue > 1e-3
    for i in (0, 2):  # times without noise stay as they were
        assert (after[:, i] == before[:, i])[~out[:, i]].all()


def test_load_is_signalled_and_slows() -> None:
    change = Load(cpu=0.5, memory=0.3, unexplained=0.2, persistence=0.9)
    conditions = process(POOL, 400, 30, [change])
    signal = np.array([condition.signal for condition in conditions])
    factor = np.array([condition.factor for condition in conditions])
    for kind in (0, 1):
        assert stats.kstest(signal[-1, :, :, kind].ravel(), "uniform").pvalue > 1e-3
        normal = ndtri(signal[..., kind])
        np.testing.assert_allclose(
            np.corrcoef(normal[:-1].ravel(), normal[1:].ravel())[0, 1],
            0.9,
            atol=0.02,
        )
    unexplained = np.log(factor * (1 - 0.5 * signal[..., 0] - 0.3 * signal[..., 1]))
    np.testing.assert_allclose(unexplained.std(), 0.2, atol=0.01)
    for kind in (0, 1):  # what the signals do not tell
        assert abs(np.corrcoef(unexplained.ravel(), signal[..., kind].ravel())[0, 1]) < 0.05


DIGESTS = (
    *(
        "55e2e096",
        "c8584e00",
        "510579ba",
        "f143bc32",
        "9dca8bbe",
        "51e102da",
        "404a332c",
        "26d4632d",
        "f89d86ab",
    ),
    *("cfdb018e", "ca9d9ea8", "c58d4f8c", "bcc96956", "d9ca7bdb"),
)
SEVERAL = (Walk(0.3, 0.5), Switch(every=2), Jump(3, (1, 4), 0.2), Switch(at=(4,)))


UNLOADED = [change for change in CHANGES if not change.follows_load]
LISTS = [*((change,) for change in UNLOADED), UNLOADED, SEVERAL]


@pytest.mark.parametrize(("changes", "expected_start"), list(zip(LISTS, DIGESTS, strict=True)))
def test_workers_that_are_not_drawn_change_as_they_always_have(
    changes: Sequence[Change],
    expected_start: str,
) -> None:
    digest = hashlib.sha256()
    for condition in process(POOL, 40, 9, changes):
        for part in (
            condition.distribution,
            condition.factor,
            condition.common,
            condition.death_time,
            condition.signal,
        ):
            digest.update((np.round(part.astype(np.float64), 9) + 0.0).tobytes())
        if (condition.latency_factor != 1.0).any():
            digest.update(np.round(condition.latency_factor, 9).tobytes())
    assert digest.hexdigest().startswith(expected_start)


@pytest.mark.parametrize("change", [OnOff(5, 0.1, 0.3), Spot(0.1, 0.3)])
def test_workers_of_a_rack_turn_on_and_off_together_and_racks_by_themselves(
    change: OnOff | Spot,
) -> None:
    pool = deterministic(np.ones(8))
    rows = 500

    def states(rack: int) -> Floats:
        conditions = process(pool, rows, 12, [replace(change, rack=rack)])
        return np.array(
            [(condition.factor > 1) | (condition.death_time == 0) for condition in conditions],
            np.float64,
        )

    # the last rack has two workers
    alone = states(1)
    racks = states(3)
    first = alone[:, :, [0, 0, 0, 3, 3, 3, 6, 6]]
    together = first.all(axis=2)  # where all are away, the lowest stays alive
    assert (racks == first)[~together].all()
    np.testing.assert_allclose(racks.mean(), 0.25, atol=0.03)
    assert (states(99)[..., 1:] == alone[..., :1])[
        ~together
    ].all()  # larger than the pool: all workers are one rack


def test_a_state_of_its_own_is_not_named_in_data_so_that_what_was_made_before_stays_valid() -> None:
    assert "rack" not in OnOff(5, 0.1, 0.3).to_data()
    assert change_from_data(Spot(0.1, 0.3, rack=4).to_data()) == Spot(0.1, 0.3, rack=4)
    drawn = Redraw(PoolDistribution(6), among=((OnOff(5, 0.1, 0.3, rack=2),),))
    assert change_from_data(json.loads(json.dumps(drawn.to_data()))) == drawn


POOLS = PoolDistribution(5, fewest=2)
DRAWN = Redraw(
    POOLS,
    price=(0.1, 1),
    among=((), (Switch(every=2),), (Walk(0.3, 0.5), Jump(3, (1, 4), 0.2))),
    every=7,
)


@settings(max_examples=10)
@given(
    st.sampled_from([(), (DRAWN,)]),
    st.lists(st.sampled_from(CHANGES), min_size=1, max_size=4, unique_by=type),
)
def test_data_json_and_pickle_give_an_equal_scenario(
    first: tuple[Change, ...],
    later_changes: list[Change],
) -> None:
    pool = POOL
    if first:
        # workers that are drawn anew pay no latency
        pool = POOL.with_latency(None)
        later_changes = [one for one in later_changes if not isinstance(one, Congestion)]
    changes = (*first, *later_changes)
    scenario = Scenario(pool, budget=4, changes=changes)
    data = scenario.to_data()
    twins = [
        Scenario(pool, budget=4, changes=[change.to_data() for change in changes]),  # type: ignore[arg-type]
        Scenario(**json.loads(json.dumps(data))),
        pickle.loads(pickle.dumps(scenario)),
    ]
    for twin in twins:
        assert (twin, hash(twin), repr(twin), twin.changes) == (
            scenario,
            hash(scenario),
            repr(scenario),
            changes,
        )
    assert scenario != Scenario(pool, budget=4)
    assert type(changes[0]).__name__ in repr(scenario)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Switch, "either every"),
        (lambda: Switch(every=3, at=(2,)), "either every"),
        (lambda: Switch(at=(0,)), "each of at of Switch must be a whole number from 1"),
        (lambda: Switch(every=2, permutation=(0, 2)), "each worker from 0 once"),
        (
            lambda: checked_changes([Switch(every=2, permutation=(0, 1))], N),
            "each of 5 workers once",
        ),
        (
            lambda: Jump(at=3, workers=(0,), factor=2, until=3),
            "until of Jump must be a whole number from 4",
        ),
        (lambda: checked_changes([Jump(at=3, workers=(5,), factor=2)], N), "must be below 5"),
        (lambda: Periodic(10**400, 0.5), "period of Periodic must be a number above 0"),
        (lambda: change_from_data({"change": ["walk"]}), "a change is a mapping"),
        (lambda: Walk(3, 1), "step of Walk must be a number above 0 and at most 2, not 3"),
        (lambda: Outliers(0.1, 10, 5), "high of Outliers must be a number of at least 10, not 5"),
        (lambda: Crash(0.1, 1, 1.5), "away of Crash must be"),  # type: ignore[arg-type]
        (
            lambda: Load(0.6, 0.4, 0, 0.5),
            "memory of Load must be a number of at least 0 and below 0.4, not 0.4",
        ),
        (lambda: checked_changes(Switch(every=3), N), "changes must be a list of changes"),  # type: ignore[arg-type]
        (
            lambda: checked_changes([Correlated(0.5, 0.5), Correlated(0.2, 0.5)], N),
            "one Correlated only",
        ),
        (lambda: change_from_data({"change": "drift"}), '"change" is one of switch, jump'),
        (
            lambda: change_from_data({"change": "walk", "steps": 1}),
            "the data of Walk hold step, bound, not steps",
        ),
        (lambda: Scenario(POOLS, 3, None, (Walk(0.1, 1.0), Redraw(POOLS))), "must come first"),
        (
            lambda: Scenario(POOLS, 3, None, (Redraw(POOLS), Redraw(POOLS))),
            "there can be one Redraw only",
        ),
        (
            lambda: Scenario(POOLS, 3, None, (Redraw(PoolDistribution(4)),)),
            "draws 4 workers, and the pool has 5",
        ),
        (
            lambda: Scenario(POOLS, 3, None, (Redraw(POOLS, among=((Jump(0, (5,), 2.0),),)),)),
            "of Jump must be below 5",
        ),
        (
            lambda: Redraw(POOLS, among=((Correlated(0.5, 0.5),),)),
            "among of Redraw must be lists of changes of which",
        ),
        (lambda: Redraw(POOLS, among=((1,),)), "among of Redraw must be lists"),  # type: ignore[arg-type]
        (lambda: Redraw(POOLS, among=(Switch(every=2),)), "among of Redraw must be lists"),  # type: ignore[arg-type]
        (lambda: Redraw(POOLS, among=Switch(every=2)), "among of Redraw must be lists"),  # type: ignore[arg-type]
        (
            lambda: change_from_data({"change": "redraw", "pools": {"n": 5}, "among": None}),
            "the data of Redraw hold",
        ),
        (lambda: Redraw(POOLS, price=(2.0, 1.0)), "price of Redraw must be two numbers from 0"),
        (lambda: Redraw({"n": 5, "colour": 1}), "the data of a PoolDistribution hold"),  # type: ignore[arg-type]
        (lambda: Redraw(7), "the data of a PoolDistribution hold"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_gives_one_clear_error(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


EVERY = {type(change): change for change in (*reversed(CHANGES), DRAWN, ShareTime(3, 0.1))}


def kinds(kind: type[Change] = Change) -> set[type[Change]]:
    below = {one for one in kind.__subclasses__() if one.__module__.startswith("ata_gym.")}
    if below:
        return set().union(*map(kinds, below))
    return {kind}


def bad_values() -> Iterator[tuple[Change, str, Any]]:
    """What no field of a change may be, and what is just outside the limits of each field that
    declares some.
    """
    for change in EVERY.values():
        for field in fields(change):
            limits = field.metadata
            yield from (
                (change, field.name, value) for value in (-1, "x", float("nan"), float("inf"))
            )
            for end, excluded, beyond in (("low", "above", -1e-9), ("high", "below", 1e-9)):
                if end in limits:
                    yield (
                        change,
                        field.name,
                        limits[end] + (0.0 if limits.get(excluded) else beyond),
                    )


def test_every_kind_is_here() -> None:
    assert set(EVERY) == kinds()


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [pytest.param(*bad, id=f"{type(bad[0]).__name__}-{bad[1]}-{bad[2]}") for bad in bad_values()],
)
def test_no_field_takes_a_bad_value(change: Change, name: str, value: Any) -> None:
    if name == "pools":
        sentence = "PoolDistribution hold"
    else:
        sentence = rf"\b{name}\b.* must "
    with pytest.raises(ValueError, match=sentence):
        replace(change, **{name: value})
