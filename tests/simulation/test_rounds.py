"""Rounds, races and dispatch, with and without deaths, against event loops written from the
definition; the noise.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from ata_gym.pools import (
    deterministic,
    exponential,
    gamma,
    half_normal,
    log_normal,
    pareto,
    trace,
    uniform,
    weibull,
)
from ata_gym.simulation.dispatch import RoundState, dispatch_step
from ata_gym.simulation.disturbances import NOISE, Disturbances, undisturbed
from ata_gym.simulation.keys import (
    NoiseKeys,
    derive_keys,
    permutations,
    philox,
    stream_keys,
    uniforms,
)
from ata_gym.simulation.rounds import allocation_round, race_round
from ata_gym.simulation.task_times import longest_times, task_times

POOL = (
    deterministic([1.0, 2.0])  # with ties
    + exponential([1.0, 3.0], shift=[0.0, 1.0])
    + trace([[1.0, 0.0, 2.0]])  # with no time
    + trace([[4.0, 3.0]], replay="round")
    + uniform(1.0, 4.0)
    + half_normal(2.0, shift=0.5)
    + gamma(2.5, 0.7)
    + log_normal(0.1, 0.8)
    + pareto(3.0, 1.0)
    + weibull(1.7, 2.0)
)
N = POOL.n
INF = np.inf
BEFORE = np.arange(1, N + 1) % 4  # tasks that the workers have started in earlier rounds

moments_of_death = st.lists(
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.7, 4.0, INF]),
    min_size=N,
    max_size=N,
)
deaths = st.one_of(st.just([INF] * N), moments_of_death)
deadlines = st.sampled_from([0.0, 1.0, 2.5, 7.0])
latencies = st.one_of(
    st.just([0.0] * N),
    st.lists(st.sampled_from([0.0, 0.25, 0.7, 1.0, 3.0]), min_size=N, max_size=N),
)


def survivors(death_time: list[float]) -> np.ndarray:
    moments = np.array(death_time)
    moments[np.argmax(moments)] = INF
    return moments


def disturbances(
    death_time: np.ndarray, deadline: float = 0.0, latency: list[float] | None = None
) -> Disturbances:
    plain = undisturbed(len(death_time))
    return plain._replace(
        death_time=death_time[None],
        deadline=deadline,
        latency=plain.latency if latency is None else np.array([latency]),
    )


def time_of(worker: int, task: int, seed: int, episode: int = 0, round_index: int = 0) -> float:
    return float(
        task_times(POOL.distributions, stream_keys(seed), episode, round_index, worker, task)[0],
    )


def play(
    runner,
    allocation,
    budget: int,
    death_time,
    deadline: float,
    latency=None,
    seed=0,
    episode=0,
    round_index=0,
):
    noise_keys = NoiseKeys(
        stream_keys(seed),
        np.array([episode]),
        np.array([round_index]),
        BEFORE[None],
    )
    faults = disturbances(np.array(death_time), deadline, latency)
    return runner(POOL.distributions, noise_keys, np.array([allocation]), budget, faults)


class ByDefinition:
    """One round as events in order of (moment, worker)."""

    def __init__(
        self,
        allocation: list[int],
        budget: int,
        death_time: np.ndarray,
        deadline: float,
        latency: list[float],
        *counters: int,
    ) -> None:
        self.death_time = death_time
        self.latency = latency
        self.paid = [0.0] * N
        self.counters = counters
        self.time = 0.0
        self.lost = 0
        self.todo = [a if death_time[i] > 0 else 0 for i, a in enumerate(allocation)]
        self.task_start: dict[int, float] = {}  # of those who run a task
        self.idle_since = [0.0] * N
        self.started = BEFORE.tolist()
        self.elapsed = [0.0] * N
        self.results: list[tuple[int, int, float, float]] = []
        for i in range(N):
            self.start(i)
        while True:
            while self.time >= deadline and self.short_of(budget):
                heirs = [
                    (self.idle_since[i], i)
                    for i in range(N)
                    if i not in self.task_start and death_time[i] > self.time
                ]
                if not heirs:
                    break
                heir = min(heirs)[1]
                self.todo[heir] = 1
                self.start(heir)
            moment, i = min(((self.leaves(i), i) for i in self.task_start), default=(INF, -1))
            if self.time < deadline < moment and self.short_of(budget):
                self.time = deadline
                continue
            self.time = moment
            if self.ends(i) <= death_time[i]:
                self.results.append(
                    (i, self.started[i] - 1, self.ends(i) - self.task_start[i], self.task_start[i]),
                )
            else:
                self.lost += 1
                self.stop(i)
            del self.task_start[i]
            self.idle_since[i] = moment
            if len(self.results) == budget:
                break
            if death_time[i] > moment:
                self.start(i)
            else:
                self.todo[i] = 0
        for i in self.task_start:
            self.stop(i)

    def short_of(self, budget: int) -> bool:
        # who will die is not known
        return len(self.results) + len(self.task_start) + sum(self.todo) < budget

    def start(self, i: int) -> None:
        if self.todo[i]:
            self.todo[i] -= 1
            self.task_start[i] = self.time
            if self.started[i] == BEFORE[i]:
                self.task_start[i] += self.latency[i]
                self.paid[i] = self.latency[i]
            self.started[i] += 1

    def stop(self, i: int) -> None:
        run_time = self.time - self.task_start[i]
        self.elapsed[i] = max(run_time, 0.0)
        self.paid[i] += min(run_time, 0.0)

    def ends(self, i: int) -> float:
        return self.task_start[i] + time_of(i, self.started[i] - 1, *self.counters)

    def leaves(self, i: int) -> float:
        return min(self.ends(i), self.death_time[i])


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=N, max_size=N).filter(any),
    st.data(),
    deaths,
    deadlines,
    latencies,
    st.integers(0, 9),
)
def test_a_round_equals_its_definition(
    allocation, data, death_time, deadline, latency, seed
) -> None:
    total = sum(allocation)
    budget = data.draw(st.just(total) | st.integers(max(allocation), total))
    moments = survivors(death_time)
    counters = (seed, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3)))
    expected = ByDefinition(allocation, budget, moments, deadline, latency, *counters)
    task_start = np.empty((1, budget))
    arguments = allocation, budget, moments, deadline, latency, *counters
    outcome = play(partial(race_round, task_start=task_start), *arguments)
    if budget == total:
        plain = play(allocation_round, *arguments)
        assert [part.tobytes() for part in plain] == [part.tobytes() for part in outcome]
    results = sorted(expected.results)
    assert outcome.worker[0].tolist() == [i for i, *_ in results]
    assert outcome.duration[0].tolist() == [time_of(i, j, *counters) for i, j, *_ in results]
    np.testing.assert_allclose(task_start[0], [start for *_, start in results], atol=1e-12)
    np.testing.assert_allclose(outcome.elapsed[0], expected.elapsed, atol=1e-12)
    np.testing.assert_allclose(outcome.latency[0], expected.paid, atol=1e-12)
    assert (outcome.started[0].tolist(), outcome.lost[0]) == (expected.started, expected.lost)
    np.testing.assert_allclose(outcome.round_time[0], expected.time)
    # worker time is what gave a result, what did not, and what came before
    np.testing.assert_allclose(
        outcome.worker_time[0],
        outcome.duration[0].sum() + outcome.elapsed[0].sum() + outcome.latency[0].sum(),
        atol=1e-12,
    )


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=N, max_size=N), min_size=1, max_size=10),
    deaths,
    latencies,
    st.integers(1, 5),
    st.integers(0, 30),
)
def test_dispatch_equals_its_definition(
    decisions: list[list[int]],
    death_time: list[float],
    latency: list[float],
    budget: int,
    seed: int,
) -> None:
    moments = survivors(death_time)
    zero = np.zeros(1, np.int64)
    started = np.zeros((1, N), np.int64)
    round_state = RoundState.start(1, N, budget)
    time = 0.0
    running: dict[int, tuple[float, float]] = {}  # (due, begun)
    worker_time = 0.0
    elapsed = np.zeros(N)
    lost = 0
    tasks = [0] * N
    paid = np.zeros(N)
    with_result: set[int] = set()
    for results, action in enumerate(decisions, start=1):
        at = dispatch_step(
            POOL.distributions,
            NoiseKeys(stream_keys(seed), zero, zero, started),
            round_state,
            np.array([action], np.int8),
            budget,
            disturbances(moments, latency=latency),
        )
        started = at.started
        round_state = at.round_state
        while True:
            alive = [i for i in range(N) if moments[i] > time]
            chosen = [i for i in alive if action[i] and i not in running]
            for i in chosen if chosen or running else alive:
                begin = time if tasks[i] else time + latency[i]
                running[i] = (begin + time_of(i, tasks[i], seed), begin)
                if not tasks[i]:
                    paid[i] = latency[i]
                tasks[i] += 1
            time, i = min((min(due, moments[i]), i) for i, (due, _) in running.items())
            due, task_start = running.pop(i)
            worker_time += max(time - task_start, 0.0)
            if due <= moments[i]:
                break
            elapsed[i] = max(time - task_start, 0.0)
            paid[i] += min(time - task_start, 0.0)
            lost += 1
        age = np.zeros(N)
        run_time = np.zeros(N)
        so_far = paid.copy()
        for j, (_, task_start) in running.items():
            run_time[j] = max(time - task_start, 0.0)
            age[j] = time - task_start + (paid[j] if tasks[j] == 1 else 0.0)
            so_far[j] += min(time - task_start, 0.0)
        over = results == budget
        assert (at.worker[0], at.round_over[0]) == (i, over)
        np.testing.assert_allclose(at.round_time[0], time)
        np.testing.assert_allclose(
            at.worker_time[0], worker_time + run_time.sum() + so_far.sum(), atol=1e-12
        )
        shown = np.zeros(N)
        if i not in with_result:
            shown[i] = so_far[i]
        with_result.add(i)
        if over:
            silent = [j for j in range(N) if j not in with_result]
            shown[silent] = so_far[silent]
        np.testing.assert_allclose(at.latency[0], shown, atol=1e-12)
        np.testing.assert_allclose(
            at.elapsed[0],
            elapsed + run_time if over else np.zeros(N),
            atol=1e-12,
        )
        np.testing.assert_allclose(at.age[0], np.zeros(N) if over else age, atol=1e-12)
        assert (round_state.lost[0], started[0].tolist()) == (lost, tasks)
        if over:
            break
        assert round_state.running[0].tolist() == [int(j in running) for j in range(N)]


@pytest.mark.parametrize(("dead", "heirs"), [(3, [0, 1]), (0, [1, 2]), (1, [0, 2])])
def test_of_workers_that_are_idle_as_long_the_lowest_inherits_first(
    dead: int,
    heirs: list[int],
) -> None:
    pool = deterministic(np.ones(4))
    allocation = np.ones((1, 4), np.int64)
    death_time = np.full(4, INF)
    zero = np.zeros(1, int)
    allocation[0, dead] = 2
    death_time[dead] = 0.5
    keys = NoiseKeys(stream_keys(0), zero, zero, np.zeros((1, 4), np.int64))
    outcome = race_round(
        pool.distributions, keys, allocation, 5, disturbances(death_time, deadline=1.5)
    )
    counts = np.where(np.arange(4) == dead, 0, 1)
    counts[heirs] += 1
    assert np.bincount(outcome.worker[0], minlength=4).tolist() == counts.tolist()


def test_somebody_must_live() -> None:
    with pytest.raises(ValueError, match="must be inf for one"):
        play(race_round, [1] * N, N, [0.0] * N, 0.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("death_time", [[INF, INF], [INF, 1.5], [0.0, INF]])
def test_a_round_with_times_beyond_floating_point_ends(bad, death_time):
    """No env has such times: a loop that is not compiled to end could not be stopped from
    Python.
    """
    good = deterministic([1.0, 1.0]).distributions
    zero = np.zeros(1, np.int64)
    faults = disturbances(np.array(death_time))
    for shift in ([bad, 0.0], [0.0, bad], [bad, bad]):
        distributions = good._replace(shift=np.array(shift))
        noise_keys = NoiseKeys(stream_keys(0), zero, zero, np.zeros((1, 2), np.int64))
        for allocation in ([3, 2], [5, 5]):
            assert (
                race_round(
                    distributions, noise_keys, np.array([allocation]), 5, faults
                ).started.sum()
                >= 5
            )
        at = RoundState.start(rows=1, n=2, budget=5)
        for k in range(5):
            completion = dispatch_step(
                distributions, noise_keys, at, np.ones((1, 2), np.int8), 5, faults
            )
            noise_keys = noise_keys._replace(started=completion.started)
            at = completion.round_state
            assert completion.round_over[0] == (k == 4)


def test_times_follow_the_distribution_of_the_pool() -> None:
    times = task_times(
        POOL.distributions,
        stream_keys(0),
        0,
        0,
        np.arange(N),
        np.arange(20_000)[:, None],
    )
    shift = POOL.distributions.shift
    scale = POOL.distributions.scale
    longest = longest_times(POOL.distributions)
    assert (times[:, :2] == [1.0, 2.0]).all()
    assert longest[[0, 1, 4, 5]].tolist() == [1.0, 2.0, 2.0, 4.0]
    assert POOL.median()[[0, 1, 4, 5]].tolist() == [1.0, 2.0, 1.0, 3.5]
    for i in (2, 3, *range(6, N)):
        standard = POOL.standard(i)
        assert stats.kstest((times[:, i] - shift[i]) / scale[i], standard.cdf).pvalue > 1e-3
        np.testing.assert_allclose(
            longest[i],
            shift[i] + scale[i] * standard.isf(2.0**-53),
            rtol=1e-6,
        )
        np.testing.assert_allclose(POOL.median()[i], shift[i] + scale[i] * standard.median())


def test_philox_known_answers() -> None:
    """Vectors published with the generator (Random123), for its first two words."""
    assert philox(np.uint64(0), 0, 0, 0) == (0x6627E8D5, 0xE169C58D)
    ones = np.uint64(2**64 - 1)
    assert philox(ones, np.int64(-1), np.int64(2**32 - 1), np.int64(2**32 - 1)) == (
        0x408F276D,
        0x41C83B0E,
    )
    pi = np.uint64(0x299F31D0A4093822)
    task = np.int64(np.uint64(0x85A308D3243F6A88).astype(np.int64))
    assert philox(pi, task, np.int64(0x13198A2E), np.int64(0x03707344)) == (0xD16CFE09, 0x94FDCCEB)


def grid_of_noise(keys: np.ndarray, workers: int, tasks: int, episode: int = 0) -> np.ndarray:
    """Uniform noise, shape (seeds, workers, tasks), read off a pool whose times are the noise
    itself.
    """
    pool = uniform(np.zeros(workers), 1.0)
    worker = np.arange(workers)[:, None]
    task = np.arange(tasks)
    return task_times(pool.distributions, keys[:, None, None], episode, 3, worker, task)


def test_noise_is_uniform_and_independent_across_workers_and_neighbouring_seeds() -> None:
    noise = grid_of_noise(stream_keys(100, 8), workers=8, tasks=2_000)
    assert stats.kstest(noise.ravel(), "uniform").pvalue > 1e-3
    pvalues = [stats.kstest(stream, "uniform").pvalue for stream in noise.reshape(-1, 2_000)]
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3
    streams = noise.reshape(64, -1)
    z = np.arctanh(np.corrcoef(streams)[np.triu_indices(64, 1)]) * np.sqrt(2_000 - 3)
    assert stats.kstest(z, "norm").pvalue > 1e-3  # across workers and seeds
    lagged = [np.corrcoef(s[:-1], s[1:])[0, 1] * np.sqrt(2_000) for s in streams]
    assert stats.kstest(lagged, "norm").pvalue > 1e-3  # along a stream
    pairs = np.histogram2d(noise[0].ravel(), noise[1].ravel(), bins=16)[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3  # neighbouring seeds, beyond correlation


def test_streams_never_meet() -> None:
    many = grid_of_noise(stream_keys(100, 16), workers=16, tasks=500).ravel()
    assert len(np.unique(many)) == len(many)
    first, second = (grid_of_noise(stream_keys(7), 1, 100, episode) for episode in (0, 1))
    assert not np.isin(first, second).any()


def test_keys() -> None:
    assert stream_keys(3, 4)[2] == stream_keys(5)[0]
    assert stream_keys(3)[0] != stream_keys(3, stream=1)[0]
    keys = derive_keys(stream_keys(0, 2), np.arange(6).reshape(3, 2), 1)
    assert (keys.shape, len(np.unique(keys))) == ((3, 2), 6)
    draws = uniforms(keys, 5)
    assert draws.shape == (3, 2, 5)
    assert ((draws > 0) & (draws < 1)).all()
    orders = [permutations(stream=9, number=2, size=40, group=group) for group in (0, 1)]
    assert len(np.unique(np.concatenate(orders), axis=0)) == 4
    assert (np.sort(orders, axis=-1) == np.arange(40)).all()


def test_the_columns_of_noise_are_all_of_its_places() -> None:
    assert [*NOISE] == list(range(undisturbed(2).noise.shape[-1]))
