"""Features of workers: what they say, that no unit or order of workers enters, and that policies
can compute them.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ata_gym.changes import Redraw, Spot
from ata_gym.envs.interface.worker_features import (
    FEATURE,
    LARGEST_FEATURE,
    LATENCY_FEATURES,
    MEMORY,
    ROUND_FEATURES,
    WORKER_FEATURES,
    RoundFeatures,
    WorkerMemory,
    features_of,
    flat,
)
from ata_gym.pools import PoolDistribution, deterministic, exponential
from ata_gym.scenarios import Scenario
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    IDS,
    RACE,
    SCENARIOS,
    ActionSampler,
    same,
    single,
    vector,
)

COLUMN = {name: k for k, name in enumerate((*WORKER_FEATURES, *ROUND_FEATURES))}
N = 4
times = st.floats(1e-12, 1e12)
feedback = st.lists(st.tuples(st.integers(-1, N - 1), times), min_size=1, max_size=12)


def remembered(results, elapsed, asked) -> WorkerMemory:
    memory = WorkerMemory.empty(1, len(elapsed))
    worker, duration = (np.array([part]) for part in zip(*results, strict=True))
    for _ in range(2):
        memory = memory.with_assigned(asked[None]).observe(worker, duration, elapsed[None])
    return memory


def features(memory: WorkerMemory, feedback: dict[str, Any]) -> NDArray[np.float32]:
    last = {name: part[None] for name, part in feedback.items()} | {"missing": np.array([[2]])}
    return features_of(memory, RoundFeatures(budget=6, price=0.1, horizon=10), np.array([3]), last)[
        0
    ]


arrays = st.fixed_dictionaries(
    {
        "running": hnp.arrays(np.int8, N, elements=st.integers(0, 1)),
        "started": hnp.arrays(np.int64, N, elements=st.integers(0, 6)),
        "age": hnp.arrays(np.float64, N, elements=st.just(0.0) | times),
        "present": hnp.arrays(np.bool_, N),
    },
)
waits = hnp.arrays(np.float64, N, elements=st.just(0.0) | times)
tasks = hnp.arrays(np.int64, N, elements=st.integers(0, 6))


@settings(max_examples=25)
@given(
    feedback,
    waits,
    tasks,
    arrays,
    st.sampled_from([2.0**20, 2.0**-20, 3.7, 1e-6]),
    st.permutations(range(N)),
)
def test_features_are_bounded_and_know_no_unit_of_time_nor_order(
    results,
    elapsed,
    asked,
    in_round,
    unit,
    order,
) -> None:
    result = features(remembered(results, elapsed, asked), in_round)
    assert (result.shape, result.dtype) == ((N, len(COLUMN)), np.float32)
    assert (np.abs(result) <= LARGEST_FEATURE).all()  # no NaN either
    scaled = remembered([(i, unit * t) for i, t in results], unit * elapsed, asked)
    expected = features(scaled, {**in_round, "age": unit * in_round["age"]})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    to = [*np.argsort(order), -1]  # the new number of each worker
    moved = remembered([(int(to[i]), t) for i, t in results], elapsed[order], asked[order])
    expected = features(moved, {name: part[order] for name, part in in_round.items()})
    np.testing.assert_allclose(result[order], expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=15)
@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=20))
def test_moments_of_a_worker_are_numpys(durations: list[float]) -> None:
    other = 2.0
    memory = remembered(
        [(0, t) for t in durations] + [(1, other)],
        np.zeros(N),
        np.ones(N, np.int64),
    )
    last_times = np.array(durations * 2)
    unit = (np.log(last_times.mean()) + np.log(other)) / 2
    recent = first = 0.0
    for k, t in enumerate(last_times):
        # as it was before the second step
        if k == len(durations):
            first = recent
        recent += max(1 / (k + 1), 0.25) * (t - recent)
    result = features(memory, dict.fromkeys(("running", "started", "age"), np.zeros(N)))[0]
    expected = {
        "log count": np.log1p(len(last_times)) / 5,
        "log mean": np.log(last_times.mean()) - unit,
        "log recent": np.log(recent) - unit,
        "spread": np.log(last_times).std(ddof=1),
        "last duration": np.log(last_times[-1]) - unit,
        "log level": np.log(np.mean(durations)) - unit,
        "log previous level": np.log(np.mean(durations)) - unit,
        "jump": np.log(np.mean(durations)) - np.log(first),
        "jump of other workers": 0.0,
        "silence": 0.0,
        "untried": 0.0,
        "waited": 0.0,
        "running": 0.0,
        "started": 0.0,
        "available": 1.0,
        "progress": 0.3,
        "missing": 2 / 6,
        "log workers": np.log2(N) / 10,
        "log budget": np.log2(6) / 10,
        "log price": np.log10(0.101) / 3,
    }
    assert expected.keys() == COLUMN.keys()
    for name, value in expected.items():
        clipped = np.clip(value, -LARGEST_FEATURE, LARGEST_FEATURE)
        assert result[COLUMN[name]] == pytest.approx(clipped, abs=2e-5)


@pytest.mark.parametrize("scenario_name", SCENARIOS)
@pytest.mark.parametrize("env_id", IDS)
def test_a_policy_computes_the_features_of_the_env(env_id: str, scenario_name: str) -> None:
    """From the feedback alone, with what it asked for; a flat observation holds the same
    numbers.
    """
    rows = 3
    scenario = SCENARIOS[scenario_name]
    shown, feedback, in_one = (
        vector(env_id, scenario_name, rows, observation=name, autoreset_mode="SameStep")
        for name in ("workers", "feedback", "flat")
    )
    n = scenario.pool.n
    sampler = ActionSampler(feedback.action_space, 1)
    (features_of_env, _), (observation, _), (flattened, _) = (
        env.reset(seed=9) for env in (shown, feedback, in_one)
    )
    memory = WorkerMemory.empty(rows, n)
    rounds = np.zeros(rows, np.int64)
    for _ in range(25):
        drawn = feedback.conditions().price  # the env shows it as a feature alone
        of_round = RoundFeatures(
            scenario.budget,
            scenario.price if drawn is None else drawn,
            scenario.horizon,
            scenario.pool.latency is not None,
        )
        features_of_policy = features_of(memory, of_round, rounds, observation)
        assert same(features_of_policy, features_of_env)
        assert same(flat(features_of_policy), flattened)
        act = sampler()
        (features_of_env, *_), (observation, _, _, over, info), (flattened, *_) = (
            env.step(act) for env in (shown, feedback, in_one)
        )
        results = observation["worker"], observation["duration"]
        memory = memory.with_assigned(act).observe(*results, observation["elapsed"])
        memory = memory.with_latencies(observation)
        rounds += info.get("round_over", ~over)
        rounds[over] = 0
        memory.workers[over] = 0.0


@pytest.mark.parametrize("env_id", IDS)
def test_features_show_latencies_apart_from_task_times_in_any_unit(env_id: str) -> None:
    shown = {}
    for unit in (1.0, 2.0**20, 1e-6):
        pool = exponential(unit * np.array([1.0, 2.0, 4.0])).with_latency(
            exponential(unit * np.array([3.0, 20.0, 0.5]))
        )
        scenario = Scenario(pool, 4, None)
        seen, feedback = (
            single(env_id, scenario, observation=name) for name in ("workers", "feedback")
        )
        steps = [(seen.reset(seed=4)[0], feedback.reset(seed=4)[0])]
        act = np.array({ALLOCATION: [2, 1, 1], RACE: [4, 4, 4], DISPATCH: [1, 1, 1]}[env_id])
        steps += [tuple(env.step(act)[0] for env in (seen, feedback)) for _ in range(20)]
        shown[unit] = np.array([features_of_env for features_of_env, _ in steps])
        latency = np.array([observation["latency"] for _, observation in steps])
        by_worker = [paid[paid > 0.0] for paid in latency.T]
        # the unit of time: the mean logarithm of the time per result
        busy = np.zeros(3)
        counts = np.zeros(3)
        for _, observation in steps:
            worker = observation["worker"][observation["worker"] >= 0]
            np.add.at(busy, worker, observation["duration"][: len(worker)])
            np.add.at(counts, worker, 1)
            busy += observation["elapsed"]
        log_mean = np.log(busy / np.maximum(counts, 1))[busy > 0]
        paid = np.array([[times.mean(), times[-1]] for times in by_worker])
        expected = np.log1p(paid / np.exp(log_mean.mean()))
        np.testing.assert_allclose(shown[unit][-1][:, -2:], expected, rtol=1e-5)
    assert shown[1.0].shape[-1] == len(COLUMN) + len(LATENCY_FEATURES)
    assert same(shown[1.0], shown[2.0**20])
    np.testing.assert_allclose(shown[1.0], shown[1e-6], rtol=1e-4, atol=1e-5)


def test_a_worker_that_only_paid_its_latency_is_available() -> None:
    pool = deterministic([1.0, 1.0]).with_latency([0.0, 50.0])
    env = single(RACE, Scenario(pool, 2, 3), observation="workers")
    env.reset(seed=0)
    features_of_env = env.step(np.array([2, 2]))[0]
    assert features_of_env[:, COLUMN["available"]].tolist() == [1.0, 1.0]
    assert features_of_env[1, -2:] == pytest.approx(np.log1p([2.0, 2.0]))


def test_who_runs_a_task_is_available_and_who_is_away_is_not() -> None:
    env = single(DISPATCH, Scenario(deterministic([1.0, 3.0, 9.0]), 3, 2), observation="workers")
    env.reset(seed=0)
    for _ in range(6):
        features_of_env = env.step(np.ones(3, np.int64))[0]
        assert (features_of_env[:, COLUMN["available"]] == 1.0).all()
    for env_id in (ALLOCATION, RACE):
        away = Scenario(deterministic([1.0, 1.0, 1.0]), 3, None, (Spot(0.3, 0.3),))
        env = single(env_id, away, observation="workers")
        env.reset(seed=0)
        for _ in range(15):
            gone = np.isinf(env.means())
            features_of_env = env.step(np.array([1, 1, 1]))[0]
            assert (features_of_env[:, COLUMN["available"]] == ~gone).all()


def test_empty_places_are_not_available_and_do_not_count() -> None:
    pools = PoolDistribution(6, fewest=1)
    env = vector(
        ALLOCATION,
        Scenario(pools.typical(), 3, 2, (Redraw(pools),)),
        30,
        observation="workers",
    )
    (features_of_env, _), present = env.reset(seed=0), env.conditions().present
    assert (features_of_env[..., COLUMN["available"]] == present).all()
    assert features_of_env[:, 0, COLUMN["log workers"]] == pytest.approx(
        np.log2(present.sum(axis=1)) / 10
    )
    assert len(np.unique(features_of_env[:, 0, COLUMN["log workers"]])) == 6


def test_the_columns_are_all_places_of_features_and_memory() -> None:
    assert [*FEATURE] == list(range(len(WORKER_FEATURES)))
    assert [*MEMORY] == list(range(WorkerMemory.empty(1, 2).workers.shape[-1]))
