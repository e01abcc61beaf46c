"""One round: what holds of it in general, and the noise against statistics."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ata_gym import pools
from ata_gym.pools import uniform
from ata_gym.simulation.keys import NoiseKeys, derive_keys, permutations, philox, stream_keys, uniforms
from ata_gym.simulation.rounds import allocation_round, race_round
from ata_gym.simulation.task_times import longest_times, task_times

POOL = pools.concatenate([
    pools.deterministic([2.0]),
    pools.exponential([1.0, 3.0], shift=[0.0, 1.0]),
    pools.uniform(1.0, 4.0),
    pools.half_normal(2.0, shift=0.5),
    pools.gamma(2.5, 0.7),
    pools.log_normal(0.1, 0.8),
    pools.weibull(1.7, 2.0),
    pools.pareto(3.0, 1.0),
    pools.trace([[1.0, 5.0, 2.0]], replay="task"),
    pools.trace([[4.0, 3.0]], replay="round"),
])  # fmt: skip
N = POOL.n


def play(runner, allocation, keys, started=0, episode=0, pool=POOL):  # type: ignore[no-untyped-def]
    """The third round of rows in which the workers have started so many tasks before."""
    allocation = np.atleast_2d(np.asarray(allocation, np.int64))
    rows = len(allocation)
    before = np.broadcast_to(started, (rows, pool.n)).astype(np.int64)
    noise_keys = NoiseKeys(keys, np.full(rows, episode), np.full(rows, 3), before)
    return runner(pool.distributions, noise_keys, allocation, int(allocation[0].sum()))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=N, max_size=N).filter(any), st.integers(0, 5))
def test_race_with_sum_b_is_the_plain_round(allocation: list[int], seed: int) -> None:
    keys, started = stream_keys(seed), np.arange(N) % 4
    plain, race = (play(runner, allocation, keys, started, episode=1) for runner in (allocation_round, race_round))
    for a, b in zip(plain, race, strict=True):
        assert a.tobytes() == b.tobytes()
    worker, nth = np.repeat(np.arange(N), allocation), np.concatenate([np.arange(a) for a in allocation])
    times = task_times(POOL.distributions, keys, 1, 3, worker, started[worker] + nth)
    assert plain.duration[0].tolist() == times.tolist()


def test_times_follow_the_distribution_of_the_pool() -> None:
    times = task_times(POOL.distributions, stream_keys(0), 0, 0, np.arange(9), np.arange(20_000)[:, None])
    shift, scale = POOL.distributions.shift, POOL.distributions.scale
    assert (times[:, 0] == 2.0).all()
    for i in range(1, 9):
        assert stats.kstest((times[:, i] - shift[i]) / scale[i], POOL.standard(i).cdf).pvalue > 1e-3
    longest = longest_times(POOL.distributions)
    top = [shift[i] + scale[i] * POOL.standard(i).isf(2.0**-53) for i in range(1, 9)]
    np.testing.assert_allclose(longest, [2.0, *top, 5.0, 4.0], rtol=1e-6)
    first = play(allocation_round, np.ones(N, np.int64), stream_keys(0)).duration[0]
    assert times[0].tolist() == first[:9].tolist()


def test_philox_known_answers() -> None:
    """Vectors published with the generator (Random123), for its first two words."""
    assert philox(np.uint64(0), 0, 0, 0) == (0x6627E8D5, 0xE169C58D)
    ones = np.uint64(2**64 - 1)
    assert philox(ones, np.int64(-1), np.int64(2**32 - 1), np.int64(2**32 - 1)) == (0x408F276D, 0x41C83B0E)
    pi = np.uint64(0x299F31D0A4093822)
    task = np.int64(np.uint64(0x85A308D3243F6A88).astype(np.int64))
    assert philox(pi, task, np.int64(0x13198A2E), np.int64(0x03707344)) == (0xD16CFE09, 0x94FDCCEB)


def grid_of_noise(seeds: int, workers: int, tasks: int) -> np.ndarray:
    """Uniform noise, shape (seeds, workers, tasks), read off a pool whose times are the noise itself."""
    pool = uniform(np.zeros(workers), 1.0)
    outcome = play(allocation_round, np.full((seeds, workers), tasks), stream_keys(100, seeds), pool=pool)
    return outcome.duration.reshape(seeds, workers, tasks)


def test_noise_is_uniform_and_independent_across_workers_and_neighbouring_seeds() -> None:
    noise = grid_of_noise(seeds=8, workers=8, tasks=2_000)
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
    """No number appears twice among seeds, workers, tasks and episodes."""
    many = grid_of_noise(seeds=16, workers=16, tasks=500).ravel()
    assert len(np.unique(many)) == len(many)
    pool = uniform(0.0, 1.0)
    first, second = (play(allocation_round, [100], stream_keys(7), pool=pool, episode=e).duration for e in (0, 1))
    assert not np.isin(first, second).any()


def test_keys() -> None:
    assert stream_keys(3, 4)[2] == stream_keys(5)[0]
    assert stream_keys(3)[0] != stream_keys(3, stream=1)[0]
    keys = derive_keys(stream_keys(0, 2), np.arange(6).reshape(3, 2), 1)
    assert keys.shape == (3, 2)
    assert len(np.unique(keys)) == 6
    draws = uniforms(keys, 5)
    assert draws.shape == (3, 2, 5)
    assert ((draws > 0) & (draws < 1)).all()
    orders = [permutations(stream=9, number=2, size=40, group=group) for group in (0, 1)]
    assert len(np.unique(np.concatenate(orders), axis=0)) == 4
    assert (np.sort(orders, axis=-1) == np.arange(40)).all()
