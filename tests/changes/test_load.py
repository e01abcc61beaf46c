"""Changes that follow the load: what they do against formulas, in all ids, and that the noise stays
paired.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym import Scenario, scenario
from ata_gym.changes import (
    Change,
    ColdAfterIdle,
    Crash,
    Leak,
    OnOff,
    Redraw,
    ShareTime,
    Spot,
    Switch,
    Throttling,
    Warming,
)
from ata_gym.pools import PoolDistribution, deterministic, exponential, trace
from ata_gym.scenarios import SCENARIO_GROUPS
from ata_gym.simulation.dispatch import dispatch_step
from ata_gym.simulation.rounds import race_round
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, RACE, same

PAIR = deterministic([1.0, 1.0])
NOISY = exponential([1.0, 2.0, 3.0])
FOLLOWING: list[Change] = [
    Throttling(6.0, 0.5, 0.3, 2.0),
    Leak(0.25, 5),
    ColdAfterIdle(2, 3.0),
    Warming(4, 5.0),
    Warming(4, 5.0, smooth=True),
]
SHARES = ShareTime(saturation=2.0, slope=0.5)


def make(env_id: str, *changes: Change, **options: Any) -> Any:
    return gym.make(env_id, **{"pool": PAIR, "budget": 3, "changes": changes, **options}).unwrapped


def play_round(env: Any, allocation: Sequence[int]) -> tuple[Any, dict[str, Any]]:
    """Play a whole round in which the workers start these tasks, in any id."""
    action = np.array(allocation)
    if not hasattr(env._state, "round_state"):
        observation, *_, info = env.step(action)
        return observation, info
    started = np.zeros_like(action)
    over = False
    while not over:
        observation, *_, info = env.step((started < action).astype(np.int8))
        started = observation["started"]
        over = info["round_over"]
    return observation, info


def factors(env: Any, allocations: Sequence[Sequence[int]]) -> list[list[float]]:
    """The factor of each worker before each round, and after the last one."""
    env.reset(seed=0)
    result = [env.conditions().factor.tolist()]
    for allocation in allocations:
        play_round(env, allocation)
        result.append(env.conditions().factor.tolist())
    return result


@pytest.mark.parametrize("env_id", IDS)
def test_a_busy_worker_heats_up_is_throttled_and_cools(env_id: str) -> None:
    env = make(env_id, Throttling(time_constant=4.0, hot=0.5, cool=0.3, factor=2.0), budget=2)
    env.reset(seed=0)
    heat = 0.0
    throttled = False
    seen = []
    # worker 0 works for six rounds and rests for six; worker 1 the other way
    for k in range(12):
        busy = k < 6
        _, info = play_round(env, [2, 0] if busy else [0, 2])
        heat = busy + (heat - busy) * np.exp(-info["round_time"] / 4.0)
        throttled = heat >= 0.5 or (throttled and heat > 0.3)
        seen.append(throttled)
        state = env.checkpoint()["change_0"][0]
        assert state[0, 0] == pytest.approx(heat)
        assert env.conditions().factor[0] == (2.0 if throttled else 1.0)
    assert seen[0] is False
    assert all(seen[1:6])
    # between the two thresholds, with heats of .59 and .36, it is still throttled
    assert seen[6:9] == [True, True, False]


def test_throttling_has_two_thresholds() -> None:
    """The same heat is throttled on the way down, and is not on the way up."""
    change = Throttling(time_constant=4.0, hot=0.6, cool=0.2, factor=1.0)
    env = make(ALLOCATION, change, budget=2)
    env.reset(seed=0)
    states = []
    for k in range(8):
        env.step(np.array([2, 0] if k < 3 else [0, 2]))
        states.append(env.checkpoint()["change_0"][0, :, 0].tolist())
    between = [throttled for heat, throttled in states if 0.2 < heat < 0.6]
    assert sorted(set(between)) == [0.0, 1.0]
    assert states[-1][1] == 0.0


def test_the_heat_is_a_matter_of_time_and_not_of_rounds() -> None:
    one, two = (
        make(ALLOCATION, Throttling(9.0, 0.99, 0.1, 2.0), budget=budget) for budget in (4, 2)
    )
    for env, rounds in ((one, 1), (two, 2)):
        env.reset(seed=0)
        for _ in range(rounds):
            env.step(np.array([env.budget, 0]))
    heat = [env.checkpoint()["change_0"][0, 0, 0] for env in (one, two)]
    assert heat[0] == pytest.approx(heat[1])


def test_rounds_without_time_keep_the_heat() -> None:
    pool = trace([[1.0, 0.0, 0.0]])
    env = make(ALLOCATION, Throttling(1.0, 0.5, 0.3, 2.0), pool=pool, budget=1)
    assert factors(env, [[1]] * 3) == [[1.0], [2.0], [2.0], [2.0]]
    assert env.checkpoint()["change_0"][0, 0, 0] == 1 - np.exp(-1.0)


@pytest.mark.parametrize("env_id", IDS)
def test_a_leak_grows_by_task_until_the_worker_restarts(env_id: str) -> None:
    env = make(env_id, Leak(growth=0.1, restart=5), budget=2)
    growth = [[1.0, 1.0], [1.2, 1.0], [1.4, 1.0], [1.0, 1.0], [1.1, 1.1]]
    np.testing.assert_allclose(factors(env, [[2, 0], [2, 0], [2, 0], [1, 1]]), growth)


def test_a_restart_takes_rounds_in_which_the_worker_is_away() -> None:
    env = make(ALLOCATION, Leak(growth=0.1, restart=3, away=2), pool=deterministic(np.ones(3)))
    env.reset(seed=0)
    away = []
    workers = []
    for allocation in ([3, 0, 0], [1, 2, 0], [0, 0, 3], [3, 0, 0]):
        away.append(np.isinf(env.means()).tolist())
        observation, *_ = env.step(np.array(allocation))
        workers.append(observation["worker"].tolist())
    # worker 1, and then worker 2, restart as well
    assert away == [
        [False, False, False],
        [True, False, False],
        [True, False, False],
        [False, False, True],
    ]
    # the task of worker 0 was handed on; in the last round it is back, as good as new
    assert workers == [[0, 0, 0], [1, 1, 2], [2, 2, 2], [0, 0, 0]]
    assert observation["duration"].tolist() == [1.0] * 3
    assert env.scenario.faulty
    assert not Scenario(PAIR, 3, changes=(Leak(0.1, 3),)).faulty


def test_if_all_restart_at_once_one_of_them_lives() -> None:
    env = make(ALLOCATION, Leak(growth=0.1, restart=1, away=3), budget=2)
    env.reset(seed=0)
    away = []
    for _ in range(5):
        env.step(np.array([1, 1]))
        away.append(np.isinf(env.means()).tolist())
    # the tasks of worker 0 within its own restart do not make it restart again
    assert away == [[False, True]] * 3 + [[False, False], [False, True]]


@pytest.mark.parametrize("env_id", IDS)
def test_a_worker_is_cold_after_idle_rounds_for_one_round(env_id: str) -> None:
    env = make(env_id, ColdAfterIdle(idle=2, factor=3.0), budget=2)
    played = factors(env, [[2, 0], [2, 0], [2, 0], [1, 1], [1, 1]])
    assert played == [[1, 1], [1, 1], [1, 3], [1, 3], [1, 1], [1, 1]]


@pytest.mark.parametrize("env_id", IDS)
def test_first_tasks_are_slow_by_the_tasks_before_the_round(env_id: str) -> None:
    allocations = [[2, 0], [2, 0], [0, 2], [1, 1]]
    sharp = make(env_id, Warming(tasks=3, factor=8.0), budget=2)
    assert factors(sharp, allocations) == [[8, 8], [8, 8], [1, 8], [1, 8], [1, 1]]
    smooth = make(env_id, Warming(tasks=3, factor=8.0, smooth=True), budget=2)
    expected = [[8, 8], [2, 8], [1, 8], [1, 2], [1, 1]]
    np.testing.assert_allclose(factors(smooth, allocations), expected)


@pytest.mark.parametrize(
    ("change", "factor"),
    [(ColdAfterIdle(2, 3.0), 3.0), (Warming(3, 3.0), 3.0), (Leak(1.0, 99), 1.0)],
)
def test_a_worker_that_was_away_or_died_begins_again(change: Change, factor: float) -> None:
    for fault in (Spot(0.3, 0.5), Crash(0.3, within=1.0, away=1)):
        env = gym.make_vec(ALLOCATION, 50, pool=PAIR, budget=6, changes=[fault, change])
        bare: Any = env.unwrapped
        env.reset(seed=0)
        came_back = np.zeros(2, np.int64)
        for _ in range(12):
            absent = np.isfinite(bare.conditions().death_time)
            env.step(np.full((50, 2), 3))
            conditions = bare.conditions()
            there = conditions.death_time > 0
            assert (conditions.factor[absent] == factor).all()
            assert (conditions.factor != factor).any()
            came_back += (absent & there).sum(axis=0)
        assert (came_back > 0).all()


def test_a_share_has_a_time_of_its_own() -> None:
    for changes, times in (
        ((), [1.0, 2.0, 3.0, 6.0]),
        ((ShareTime(saturation=3.0),), [3.0, 3.0, 3.0, 6.0]),
        ((ShareTime(slope=0.5),), [1.0, 3.0, 6.0, 21.0]),
        ((SHARES,), [2.0, 3.0, 6.0, 21.0]),
    ):
        for share, time in zip((1, 2, 3, 6), times, strict=True):
            env = make(ALLOCATION, *changes, pool=deterministic([1.0, 1e-9]), budget=6)
            env.reset(seed=0)
            observation, *_, info = env.step(np.array([share, 6 - share]))
            assert info["round_time"] == pytest.approx(time)
            np.testing.assert_allclose(observation["duration"][:share], time / share)
            assert env.means().tolist() == [1.0, 1e-9]


def test_what_is_rendered_is_the_round_under_its_allocation() -> None:
    env = make(ALLOCATION, SHARES, *FOLLOWING, pool=NOISY, budget=5, render_mode="ansi")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(8):
        observation, *_, info = env.step(env.action_space.sample())
        timeline = env.timeline()
        done = timeline.kind == 0
        length = timeline.end - timeline.start
        np.testing.assert_allclose(length[done], observation["duration"], atol=1e-9)
        assert timeline.end.max() == pytest.approx(info["round_time"])
        assert length.sum() == pytest.approx(info["worker_time"])


@pytest.mark.parametrize("env_id", [RACE, DISPATCH])
@pytest.mark.parametrize(
    "changes",
    [[SHARES], [Redraw(PoolDistribution(2), among=((), (SHARES,)))], [{"change": "sharetime"}]],
)
def test_a_time_of_the_share_is_refused_where_the_share_is_not_known(
    env_id: str, changes: Any
) -> None:
    pool: Any = PoolDistribution(2) if isinstance(changes[0], Redraw) else PAIR
    sentence = "ShareTime task times depend on .* TaskAllocation-v0 alone"
    for make_any in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match=sentence):
            make_any(env_id, pool=pool, budget=3, changes=changes)
    env = make(env_id, pool=pool)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=sentence):
        env.reset(options={"changes": changes})
    env.step(env.action_space.sample())


def test_a_list_of_changes_that_is_drawn_may_follow_the_load() -> None:
    lists = ((), (SHARES,), (Leak(0.5, 9),), (Warming(4, 5.0), ColdAfterIdle(1, 2.0)))
    redraw = Redraw(PoolDistribution(2), among=lists)
    env = gym.make_vec(ALLOCATION, 40, pool=redraw.pools, changes=[redraw], budget=2)
    bare: Any = env.unwrapped
    env.reset(seed=0)
    choice = bare.checkpoint()["change_0"][:, 4, 0].astype(np.int64)
    assert set(choice) == {0, 1, 2, 3}
    drawn_mean = bare.conditions().drawn_mean
    relative = bare.conditions().factor / drawn_mean
    np.testing.assert_allclose(relative, np.where(choice == 3, 5.0, 1.0)[:, None] * [1, 1])
    durations = {}
    for name, changes in (("drawn", lists), ("plain", ((), (), (), ()))):
        other = Redraw(redraw.pools, among=changes)
        twin = gym.make_vec(ALLOCATION, 40, pool=redraw.pools, changes=[other], budget=2)
        twin.reset(seed=0)
        durations[name] = twin.step(np.tile([2, 0], (40, 1)))[0]["duration"]
    slowed = np.array([1.0, 1.5, 1.0, 5.0])[choice]
    np.testing.assert_allclose(durations["drawn"], durations["plain"] * slowed[:, None])
    env.step(np.tile([2, 0], (40, 1)))
    relative = bare.conditions().factor / drawn_mean
    expected = np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [5.0, 10.0]])[choice]
    np.testing.assert_allclose(relative, expected)


@pytest.mark.parametrize("change", [*FOLLOWING, SHARES])
def test_the_noise_is_the_same_for_two_policies(change: Change) -> None:
    """Task times over the factors under which they were drawn are the same as without a change,
    whatever was asked.
    """
    rounds = 8
    per_worker: dict[int, list[Any]] = {0: [], 1: []}
    for favourite in (0, 1):
        plain, loaded = (
            make(ALLOCATION, *changes, pool=NOISY, budget=6) for changes in ((), (change,))
        )
        plain.reset(seed=3)
        loaded.reset(seed=3)
        times: list[list[float]] = [[], [], []]
        moved = False
        for _ in range(rounds):
            allocation = np.array([1, 1, 0])
            allocation[favourite] += 4
            factor = loaded._state.process.under(allocation[None])[0].scale[0] / NOISY.mean()
            expected = plain.step(allocation)[0]
            observation = loaded.step(allocation)[0]
            assert (observation["worker"] == expected["worker"]).all()
            ratio = observation["duration"] / expected["duration"]
            np.testing.assert_allclose(ratio, factor[observation["worker"]])
            moved |= bool((factor != 1.0).any())
            for i, time in zip(expected["worker"], expected["duration"], strict=True):
                times[i].append(time)
        assert moved
        per_worker[favourite] = times
    for first, second in zip(per_worker[0], per_worker[1], strict=True):
        shared = min(len(first), len(second))
        assert first[:shared] == second[:shared]


@pytest.mark.parametrize("env_id", IDS)
def test_without_a_task_nothing_changes(env_id: str) -> None:
    """The last worker is never asked, and stays as it was, but for being cold."""
    changes = [FOLLOWING[0], FOLLOWING[1], FOLLOWING[3]]
    env = make(env_id, *changes, pool=NOISY)
    idle = [row[2] for row in factors(env, [[2, 1, 0]] * 6)]
    assert idle == [5.0] * 7


@pytest.mark.parametrize("env_id", IDS)
def test_each_row_is_the_single_env_of_its_seed(env_id: str) -> None:
    """Also where rows end apart and are reset in the same step, and from a checkpoint."""
    options = {
        "pool": NOISY.with_latency(exponential([0.5, 1.0, 0.2])),
        "budget": 4,
        "horizon": 5,
        "changes": [
            *FOLLOWING,
            Leak(0.3, 4, away=1),
            Crash(0.1, 2.0, 1, 1.0),
            OnOff(2.0, 0.2, 0.2),
        ],
    }
    rows = 3
    for mode in ("NextStep", "SameStep"):
        native = gym.make_vec(env_id, rows, autoreset_mode=mode, **options)
        later = gym.make_vec(env_id, rows, autoreset_mode=mode, **options)
        sync = gym.make_vec(
            env_id,
            rows,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode(mode)},
            **options,
        )
        native.action_space.seed(1)
        assert same(native.reset(seed=9)[0], sync.reset(seed=9)[0])
        later.reset(seed=1)
        for step in range(40):
            if step == 17:
                later.unwrapped.restore(native.unwrapped.checkpoint())  # type: ignore[attr-defined]
            action = native.action_space.sample()
            result = native.step(action)
            expected = sync.step(action)
            assert same(result[0], expected[0])
            assert result[1].tolist() == expected[1].tolist()
            if step >= 17:
                assert same(later.step(action)[0], result[0])
                states = [envs.unwrapped.checkpoint() for envs in (native, later)]  # type: ignore[attr-defined]
                assert same(states[0], states[1])


@settings(max_examples=15)
@given(st.integers(0, 2**30), st.integers(1, 6))
def test_an_allocation_is_the_same_in_all_ids(seed: int, budget: int) -> None:
    """Bit for bit: busy times, which decide, are added up in the same order."""
    latency = exponential([0.5, 1.0, 0.2])
    options = {"pool": NOISY.with_latency(latency), "budget": budget}
    envs = [make(env_id, *FOLLOWING, **options) for env_id in IDS]
    for env in envs:
        env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(8):
        allocation = rng.multinomial(budget, [0.5, 0.3, 0.2])
        infos = [play_round(env, allocation)[1] for env in envs]
        assert infos[0]["round_time"] == infos[1]["round_time"] == infos[2]["round_time"]
        states = [env.checkpoint() for env in envs]
        for k in range(len(FOLLOWING)):
            name = f"change_{k}"
            assert (states[0][name] == states[1][name]).all()
            assert (states[0][name] == states[2][name]).all()


@pytest.mark.parametrize("env_id", IDS)
def test_busy_times_add_up_to_the_worker_time(env_id: str) -> None:
    changes = [Leak(0.1, 9, away=1), Crash(0.2, 2.0, 1, 1.0), Warming(3, 2.0)]
    latency = exponential([0.5, 1.0, 0.2])
    env: Any = gym.make_vec(
        env_id, 4, pool=NOISY.with_latency(latency), budget=5, changes=changes
    ).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    state = env._state
    rounds: list[Any] = []
    next_round = state.next_round
    state.next_round = lambda rows, last: rounds.append((rows, last)) or next_round(rows, last)
    ended = 0
    for _ in range(60):
        before = env.checkpoint()["total_worker_time"]
        started = env.checkpoint()["started"]
        rounds.clear()
        env.step(env.action_space.sample())
        for rows, last in rounds:
            chosen = np.ones(4, np.bool_) if rows is None else rows
            worker_time = (env.checkpoint()["total_worker_time"] - before)[chosen]
            np.testing.assert_allclose(last.busy_time.sum(axis=1)[chosen], worker_time)
            assert (last.busy_time <= last.round_time[:, None] + 1e-9)[chosen].all()
            if rows is None:
                assert (last.tasks == env.checkpoint()["started"] - started).all()
            ended += chosen.sum()
    assert ended > 20


def test_a_backend_may_run_workers_that_follow_the_load() -> None:
    class Simulated:
        dispatch = staticmethod(dispatch_step)

        def __call__(self, *arguments: Any) -> Any:
            return race_round(*arguments)

    for env_id in IDS:
        own, plain = (
            make(env_id, *FOLLOWING, pool=NOISY, backend=backend) for backend in (Simulated(), None)
        )
        assert factors(own, [[2, 1, 0]] * 5) == factors(plain, [[2, 1, 0]] * 5)


def test_rows_that_take_no_step_keep_their_state() -> None:
    env = gym.make_vec(
        ALLOCATION, 2, pool=PAIR, budget=2, changes=[Warming(2, 5.0), SHARES], action="assign"
    )
    bare: Any = env.unwrapped
    env.reset(seed=0)
    bare.checkpoint()
    # row 0 is one choice ahead of row 1
    bare._interface.form.picks[0, 0] = 1
    env.step(np.array([0, 1]))
    assert bare.conditions().factor.tolist() == [[1.0, 5.0], [5.0, 5.0]]
    env.step(np.array([1, 1]))
    assert bare.conditions().factor.tolist() == [[1.0, 5.0], [5.0, 1.0]]


def test_scenarios_say_that_they_follow_the_load() -> None:
    names = SCENARIO_GROUPS["following the load"]
    kinds = set()
    for name in names:
        named = scenario(name)
        kinds |= {type(change) for change in named.changes}
        assert named.follows_load
        assert not named.stationary
        share_time = any(isinstance(change, ShareTime) for change in named.changes)
        assert named.needs_allocation == share_time
    assert kinds == {Throttling, Leak, ColdAfterIdle, Warming, ShareTime}
    assert not scenario("changing-crash").follows_load
    assert not Scenario(PAIR, 3, changes=(Switch(every=2),)).needs_allocation


@pytest.mark.parametrize("name", SCENARIO_GROUPS["following the load"])
def test_in_named_scenarios_two_policies_meet_other_workers(name: str) -> None:
    """The loads of an even split and of one among two workers differ, and what they meet too."""
    known = scenario(name)
    met = []
    for used in (8, 2):
        env: Any = gym.make(ALLOCATION, scenario=known).unwrapped
        env.reset(seed=0)
        allocation = np.where(np.arange(8) < used, known.budget // used, 0)
        rounds = []
        for _ in range(60):
            distributions, _ = env._state.process.under(allocation[None])
            rounds.append(distributions.scale[0] / known.pool.distributions.scale)
            env.step(allocation)
        met.append(np.array(rounds))
    assert (met[0] != met[1]).any()
    assert max(factor.max() for factor in met) > 1.0
