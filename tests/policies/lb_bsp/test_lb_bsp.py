"""LB-BSP: exact integers, moves and their step, profiles, memory limits, and clients that leave."""

import itertools
from functools import reduce
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ata_policies
from ata_gym import allocate
from ata_gym.pools import deterministic, exponential, gamma
from ata_policies import Setting, State, check_policy
from ata_policies.beliefs.availability import best_pause
from ata_policies.lb_bsp.cpu import LbBsp, raised
from ata_policies.lb_bsp.gpu import LbBspGpu, LbBspProfiled, balanced, fitted
from ata_policies.policy import AllocationPolicy, Observation
from ata_policies.steps import play
from tests.policies.conftest import blank

MEANS = np.arange(1.0, 6.0)
SPEEDS = st.floats(0.1, 10.0)


def all_loads(n: int, budget: int) -> Any:
    return np.array([x for x in itertools.product(range(budget + 1), repeat=n) if sum(x) == budget])


def feedback(times: list[list[float]]) -> Observation:
    """What a single env shows: the times of each worker's results."""
    worker = np.repeat(np.arange(len(times)), [len(of_worker) for of_worker in times])
    return {"worker": worker, "duration": np.concatenate(times), "elapsed": np.zeros(len(times))}


def shares(
    policy: AllocationPolicy,
    task_time: Any,
    rounds: int,
    present: Any = None,
) -> tuple[list[Any], State]:
    """Play against fixed task times; who is not ``present(k)`` gives nothing, and the first who is
    does its work.
    """
    n = policy.setting.n
    budget = policy.setting.budget
    (action, state), actions = policy.predict(blank(n, budget)), []
    for k in range(rounds):
        actions.append(action)
        if present is None:
            available = np.ones(n, bool)
        else:
            available = present(k)
        done = np.where(available, action, 0)
        done[np.argmax(available)] += budget - done.sum()
        action, state = policy.predict(
            feedback([[task_time[i]] * int(done[i]) for i in range(n)]),
            state,
        )
    return actions, state


def batched(seen: Observation) -> Observation:
    return {name: np.stack([field, field]) for name, field in seen.items()}


def test_narx_keeps_the_contract_while_it_learns() -> None:
    small = {"lags": 2, "hidden": 2, "window": 8, "every": 5, "steps": 1, "warm_up": 4}
    check_policy("lb-bsp-narx", rounds=12, **small)


@settings(max_examples=40)
@given(
    speeds=st.lists(SPEEDS, min_size=1, max_size=4),
    budget=st.integers(1, 8),
    least=st.integers(0, 2),
)
def test_integer_loads_are_optimal_under_the_minimum(
    speeds: list[float],
    budget: int,
    least: int,
) -> None:
    """By all allocations; with no minimum it is ``allocate`` itself."""
    n = len(speeds)
    scores = 1.0 / np.array(speeds)
    least = min(least, budget // n)
    found = raised(allocate(scores, budget), scores, np.full(n, least))
    options = all_loads(n, budget)
    options = options[(options >= least).all(axis=1)]
    assert found.tolist() in options.tolist()
    assert (found * scores).max() <= (options * scores).max(axis=1).min() * (1 + 1e-12)
    np.testing.assert_array_equal(
        raised(allocate(scores, budget), scores, np.zeros(n, int)),
        allocate(scores, budget),
    )


def test_loads_follow_the_last_speeds() -> None:
    policy = LbBsp(Setting(n=3, budget=12), predictor="last")
    actions, state = shares(policy, [1.0, 2.0, 100.0], rounds=3)
    assert actions[0].tolist() == [4, 4, 4]
    assert actions[1].tolist() == [8, 3, 1]  # the slow one keeps a task, so that its speed is seen
    action, _ = policy.predict(feedback([[50.0] * 8, [2.0] * 3, [1.0]]), state)
    assert action.tolist() == [1, 4, 7]


def test_fewer_tasks_than_workers() -> None:
    """Untried ones come first; then there is no minimum, and who looks slow is not asked again."""
    policy = LbBsp(Setting(n=5, budget=2), predictor="last", seed=1)
    actions, _ = shares(policy, [5.0, 4.0, 3.0, 2.0, 1.0], rounds=8)
    assert (np.array(actions[:3]).sum(axis=0) >= 1).all()
    assert actions[-1].tolist() == [0, 0, 0, 1, 1] or actions[-1].tolist() == [0, 0, 0, 0, 2]
    assert (actions[-1] * np.arange(5.0, 0.0, -1.0)).max() == 2.0


def test_signals_reach_the_predictor_in_a_single_env_and_in_a_batch() -> None:
    """The speed is 1 - cpu, and cpu is new in each round: only who reads it in time can be
    right.
    """
    rng = np.random.default_rng(0)
    n = 3
    budget = 30
    policy = LbBsp(Setting(n, budget), predictor="linear", lags=2, past=0, ridge=1e-3)
    signal = rng.uniform(0.0, 0.8, (60, n, 2))
    seen = blank(n, budget) | {"signal": signal[0]}
    (action, state), (both, states) = policy.predict(seen), policy.predict(batched(seen))
    for k in range(59):
        np.testing.assert_array_equal(both[0], action)
        speed = 1.0 - signal[k, :, 0]
        if k > 30:
            best = (allocate(1.0 / speed, budget) / speed).max()
            assert (action / speed).max() < 1.15 * best
        seen = feedback([[1.0 / speed[i]] * int(action[i]) for i in range(n)]) | {
            "signal": signal[k + 1],
        }
        (action, state), (both, states) = (
            policy.predict(seen, state),
            policy.predict(batched(seen), states),
        )


def test_predictors_by_name_and_bad_input() -> None:
    setting = Setting(n=3, budget=6)
    env = gym.make("ata_gym/TaskAllocation-v0", pool=exponential([1.0, 2.0, 3.0]), budget=6)
    policy = ata_policies.make("ata_policies.lb_bsp.cpu:LbBsp", env, predictor="linear")
    assert policy.predict(env.reset()[0])[0].sum() == 6
    for make, message in (
        (
            lambda: LbBsp(setting, predictor="emma"),
            "there is no predictor 'emma'; did you mean ema",
        ),
        (lambda: LbBsp(setting, least=-1), "least must be"),
        (
            lambda: LbBsp(setting, forecast="times"),
            "there is no forecast 'times'; did you mean time",
        ),
        (lambda: LbBsp(setting, availability=1), "availability must be True or False"),
        (lambda: LbBspGpu(setting, tolerance=0.0), "tolerance must be"),
        (lambda: LbBspGpu(setting, memory=1), "memory must hold the budget of 6 tasks, not only 3"),
        (
            lambda: LbBspGpu(setting, memory=[1, 2]),
            "memory must be a whole number of at least 0, or one for each",
        ),
        (lambda: LbBspProfiled(setting, memory=2.5), "memory must be"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(ValueError, match=r"does not take these hyperparameters: .*lags"):
        ata_policies.make("ata_policies.lb_bsp.cpu:LbBsp", env, predictor="ema", lags=3)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "estimate"),
    [
        (
            "recent-average",
            {"weight": 0.3},
            lambda sample: reduce(lambda old, one: 0.3 * one + 0.7 * old, sample),
        ),
        ("recent-median", {"window": 4}, lambda sample: np.median(sample[-4:])),
    ],
)
def test_recent_times_are_averaged_and_allocated_by(
    name: str,
    hyperparameters: Any,
    estimate: Any,
) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=gamma(25.0, MEANS / 25), budget=9)
    samples: list[list[float]] = [[] for _ in MEANS]
    for k, step in enumerate(
        islice(play(ata_policies.make(name, env, **hyperparameters), env, seed=2), 60),
    ):
        if k:
            np.testing.assert_array_equal(
                step.action,
                allocate([estimate(one) for one in samples], 9),
            )
        for i in np.flatnonzero(step.action):
            samples[i].append(
                step.next_observation["duration"][step.next_observation["worker"] == i].mean()
            )


def test_moves_go_from_straggler_to_leader_until_times_are_equal() -> None:
    policy = LbBspGpu(Setting(n=3, budget=60), step=8, window=2)
    actions, state = shares(policy, [1.0, 2.0, 3.0], rounds=80)
    assert actions[0].tolist() == [20, 20, 20]
    assert actions[1].tolist() == [20, 20, 20]  # the window
    assert (actions[2].tolist(), max(np.abs(np.diff(actions, axis=0)).max(axis=1))) == (
        [28, 20, 12],
        8,
    )
    best = (allocate([1.0, 2.0, 3.0], 60) * [1.0, 2.0, 3.0]).max()
    assert (actions[-1] * [1.0, 2.0, 3.0]).max() <= 1.1 * best
    assert state.plan.step[0] < 8
    # who owes results counts as the straggler
    policy = LbBspGpu(
        Setting(n=3, budget=30),
        step=4,
        window=1,
    )
    actions, _ = shares(
        policy,
        [1.0, 1.0, 1.0],
        rounds=2,
        present=lambda _: np.array([True, True, False]),
    )
    assert actions[1].tolist() == [10, 14, 6]


def test_a_move_back_halves_the_step_and_doubles_the_window() -> None:
    """Two equal workers and an odd start: to and fro, finer each time; moves, steps and windows."""
    policy = LbBspGpu(Setting(n=2, budget=41), step=16, window=1, longest=8, tolerance=1e-9)
    (action, state), seen, old = policy.predict(blank(2, 41)), [], (0, 16, 1)
    for _ in range(60):
        before = action
        action, state = policy.predict(feedback([[1.0] * int(tasks) for tasks in action]), state)
        new = int(action[0] - before[0]), int(state.plan.step[0]), int(state.plan.window[0])
        if new[0] or new[1:] != old[1:]:
            seen.append(new)
        old = new
    assert seen[:5] == [(-16, 16, 1), (8, 8, 2), (8, 8, 2), (-4, 4, 4), (2, 2, 8)]
    assert seen[5:] == [(2, 2, 8), *[(-1, 1, 8), (1, 1, 8)] * 2, (-1, 1, 8)]


@settings(max_examples=20)
@given(data=st.data(), n=st.integers(2, 5), budget=st.integers(2, 30), step=st.integers(1, 8))
def test_moves_respect_memory_and_the_minimum(
    data: st.DataObject,
    n: int,
    budget: int,
    step: int,
) -> None:
    memory = data.draw(st.lists(st.integers(0, budget), min_size=n, max_size=n))
    if sum(memory) < budget:
        memory[data.draw(st.integers(0, n - 1))] = budget
    times = data.draw(st.lists(SPEEDS, min_size=n, max_size=n))
    policy = LbBspGpu(Setting(n, budget), step=step, window=1, memory=memory)
    for action in shares(policy, times, rounds=25)[0]:
        assert action.sum() == budget
        assert (action >= 0).all()
        assert (action <= memory).all()


@settings(max_examples=50)
@given(data=st.data(), n=st.integers(1, 4), budget=st.integers(1, 7))
def test_the_optimum_of_a_profile_is_the_best_of_all(
    data: st.DataObject,
    n: int,
    budget: int,
) -> None:
    def draw(numbers: Any) -> Any:
        return np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)))

    flat, intercept, slope = (draw(st.floats(least, 5.0)) for least in (0.0, 0.0, 0.01))
    most = draw(st.integers(0, budget))
    if most.sum() < budget:
        most[0] = budget
    found = balanced(flat, intercept, slope, most, budget)
    options = all_loads(n, budget)
    options = options[(options <= most).all(axis=1)]

    def longest(x: Any) -> Any:
        return np.where(x > 0, np.maximum(flat, intercept + slope * x), 0.0).max(axis=-1)

    assert found.tolist() in options.tolist()
    assert longest(found) <= longest(options).min() * (1 + 1e-12)


def test_the_level_is_found_for_many_tasks() -> None:
    """A million tasks on 50 workers: the level of the continuous optimum, up to a task of the
    slowest.
    """
    slope = np.arange(1.0, 51.0)
    loads = balanced(np.full(50, 10.0), np.full(50, 3.0), slope, np.full(50, 10**6), 10**6)
    level = (10**6 + (3.0 / slope).sum()) / (1.0 / slope).sum()
    assert loads.sum() == 10**6
    assert level <= (3.0 + slope * loads).max() <= level + 50.0


def test_a_profile_is_fitted() -> None:
    x = np.array(
        [
            [1.0, 2.0, 3.0, 4.0],
            [4.0, 1.0, 2.0, 3.0],
            [2.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 2.0, 0.0],
            [0.0] * 4,
        ],
    )
    y = np.array(
        [np.maximum(6.0, 2.0 * x[0]), 1.0 + 3.0 * x[1], [3.0, 1.0, 0.0, 0.0], 5.0 * x[3], x[4]],
    )
    rounds = np.where(x > 0, 3.0, 0.0)
    (flat, intercept, slope), at = fitted(3 * x, 3 * y, rounds), np.array([1.0, 2.0, 3.0, 4.0])
    model = np.maximum(flat[:, None], intercept[:, None] + slope[:, None] * at)
    np.testing.assert_allclose(model[0], [6.0, 6.0, 6.0, 8.0], rtol=1e-9)
    np.testing.assert_allclose([flat[1], intercept[1], slope[1]], [0.0, 1.0, 3.0], atol=1e-9)
    assert intercept[2] == 0.0  # a line does not begin below 0
    np.testing.assert_allclose([flat[2], slope[2]], [0.0, 7 / 5])
    np.testing.assert_allclose([flat[3], intercept[3], slope[3]], [0.0, 0.0, 5.0], atol=1e-12)
    np.testing.assert_allclose(slope[4], slope[:4].mean())  # never measured


def test_workers_never_measured_are_as_fast_as_the_only_one_that_was() -> None:
    points = np.array([[0.0], [2.0], [0.0]])
    # and where nobody was measured
    for times, slope in (
        (3.0 * points, [3.0] * 3),
        (0.0 * points, [1.0] * 3),
    ):
        np.testing.assert_array_equal(
            fitted(points, times, np.where(times > 0.0, 1.0, 0.0))[2],
            slope,
        )


def test_a_measured_profile_gives_the_optimum() -> None:
    times = np.array([1.0, 2.0, 3.0, 6.0])
    env = gym.make("ata_gym/TaskAllocation-v0", pool=deterministic(times), budget=24)
    policy = LbBspProfiled(Setting.from_env(env), repeats=2, memory=[24, 24, 24, 1])
    actions = [step.action for step in islice(play(policy, env), 12)]
    assert len({tuple(a) for a in actions[:4]}) == 4
    assert all((a <= [24, 24, 24, 1]).all() for a in actions)
    np.testing.assert_array_equal(
        actions[8:],
        [balanced(np.zeros(4), np.zeros(4), times, [24, 24, 24, 1], 24)] * 4,
    )


def test_who_is_away_gets_nothing_but_probes_until_it_returns() -> None:
    """Worker 2 of 3 is away in rounds 5 to 29, and has 2 of the 12 tasks before.

    A late round is one of 2 rounds and a task longer: as much as 12.5 rounds without the worker.
    """
    policy = LbBsp(Setting(n=3, budget=12), availability=True)
    actions, _ = shares(
        policy,
        [1.0, 1.0, 2.0],
        50,
        present=lambda k: np.array([True, True, not 5 <= k < 30]),
    )
    third = np.array(actions)[:, 2]
    assert (third[1:6] == 2).all()
    known = 6
    probes = []
    while not probes or probes[-1] < 30:
        spell = max(12.5 / 2, known - 5.0)
        probes.append(known + best_pause(np.array(12.5), np.array(spell)))
        known = probes[-1] + 1
    assert len(probes) > 1
    assert [k for k in range(6, 50) if third[k]][: len(probes)] == probes
    assert (third[probes] == 1).all()
    assert (third[known:] == 2).all()
    assert all(a.sum() == 12 for a in actions)


def test_everybody_away_and_untried_workers() -> None:
    """If all owe results all are asked; those who are there share evenly where nothing tells them
    apart.
    """
    policy = LbBsp(Setting(n=2, budget=4), availability=True)
    first, state = policy.predict(blank(2, 4))
    assert first.tolist() == [2, 2]
    second, state = policy.predict(feedback([[1.0] * 4, []]), state)
    assert second.tolist() == [4, 0]
    third, state = policy.predict(feedback([[], [1.0] * 4]), state)
    assert third.tolist() == [2, 2]
    policy = LbBsp(Setting(n=4, budget=2), availability=True, seed=3)
    first, state = policy.predict(blank(4, 2))
    other = np.flatnonzero(first == 0)[0]  # who was handed the work
    second, _ = policy.predict(feedback([[1.0] * 2 * bool(i == other) for i in range(4)]), state)
    assert not second[first > 0].any()
    assert second.sum() == 2
