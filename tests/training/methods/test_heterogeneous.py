"""Data that differ by worker: the methods in which workers weigh alike, and where others end."""

import heapq
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from ata_gym.pools import deterministic, exponential, pareto, trace
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training import METHODS, MethodRun, Trainer
from ata_gym.training.problems.quadratic import HeterogeneousQuadratic, Quadratic
from tests.training.small_problem import run_method, weights

A = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
B = np.array([-0.25, 0, 0, 0])
X = np.array([2.0, 0, 0, 0])  # where training starts
TIMES = st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.75, 3.0, 9.0]), min_size=1, max_size=5)
SEEDS = st.integers(0, 99)


def problem(noise=0.0, spread=0.3):
    return HeterogeneousQuadratic(4, noise, spread)


@settings(max_examples=10)
@given(n=st.integers(1, 6), chunk=st.sampled_from([None, 1, 3]), seed=SEEDS)
def test_the_mean_of_the_workers_gradients_is_that_of_f(n, chunk, seed):
    trainer = Trainer(problem(), n, seed=seed, chunk=chunk, micro_batch=2)
    u = problem().offsets(n)
    shares = np.arange(n) + 1
    each = np.array(
        [trainer.gradient(tasks=4 * own).parts[0].numpy() for own in np.eye(n, dtype=np.int64)],
    )
    np.testing.assert_allclose(each, A @ X - B + 0.3 * u[:, None], atol=1e-12)
    np.testing.assert_allclose(each.mean(axis=0), A @ X - B, atol=1e-12)
    np.testing.assert_allclose(
        trainer.gradient(tasks=shares).parts[0],
        shares @ each / shares.sum(),
        atol=1e-12,
    )
    assert (u**2).mean() == pytest.approx(float(n > 1))


@settings(max_examples=10)
@given(times=TIMES, budget=st.integers(1, 12), seed=SEEDS)
def test_malenia_stops_by_its_rule_and_steps_along_the_gradient_of_f(times, budget, seed):
    n = len(times)
    counts = [0] * len(times)
    x = X
    for end, i in sorted((time * j, i) for i, time in enumerate(times) for j in range(1, 500)):  # noqa: B007
        counts[i] += 1
        if all(counts) and n / sum(Fraction(1, count) for count in counts) >= Fraction(budget, n):
            break
    run = run_method(
        "malenia",
        deterministic(times),
        problem(),
        updates=6,
        budget=budget,
        seed=seed,
        lr=0.5,
    )
    k = np.arange(1, 7)
    np.testing.assert_array_equal((run.runtime, run.used), (end * k, sum(counts) * k))
    for _ in k:  # as offsets weigh alike, without noise each step is exact
        x = x - 0.5 * (A @ x - B)
    np.testing.assert_allclose(run.model.x.detach(), x, atol=1e-12)


@settings(max_examples=15)
@given(times=TIMES, seed=SEEDS)
def test_ringleader_is_its_brute_force(times, seed):
    n = len(times)
    noisy = problem(noise=0.1)
    key = stream_keys(seed, stream=2)[0]
    points = [X]
    ends = []
    by = []
    drawn = 0
    queue = [(time, i, 0) for i, time in enumerate(times)]
    table = [[] for _ in times]
    later = [[] for _ in times]
    heapq.heapify(queue)
    while len(ends) < 4 * n:
        clock, i, version = heapq.heappop(queue)
        k = len(ends)
        updated = i in by[len(ends) - len(ends) % n :]
        noise = noisy.draw(derive_keys(key, k, np.array([drawn]))).item()
        drawn = drawn + 1
        gradient = A @ points[version] - B + 0.3 * noisy.offsets(n)[i] + noise
        (later if updated else table)[i].append((version, gradient))
        if all(table) and not updated:
            assert max(k - version for own in table for version, _ in own) <= 2 * n - 2
            points.append(
                points[-1]
                - 0.1 * np.mean([np.mean([g for _, g in own], axis=0) for own in table], axis=0),
            )
            ends = [*ends, clock]
            by = [*by, i]
            drawn = 0
            if len(by) % n == 0:
                assert sorted(by[-n:]) == list(range(n))
                table = later
                later = [[] for _ in times]
        heapq.heappush(queue, (clock + times[i], i, len(ends)))
    run = run_method(
        "ringleader",
        deterministic(times),
        noisy,
        updates=4 * n,
        budget=3,
        seed=seed,
        lr=0.1,
    )
    np.testing.assert_allclose(run.runtime, ends)
    np.testing.assert_allclose(run.model.x.detach(), points[-1], rtol=1e-9, atol=1e-12)


RECORDS = [[1.0, 2.0, 0.5, 4.0], [3.0, 1.0], [0.0, 0.0, 7.0]]


@pytest.mark.parametrize("discount", [None, 1.0, 0.7, 0.0])
@pytest.mark.parametrize("latency", [None, [0.5, 0.0, 2.0]])
def test_rescaled_asgd_is_its_brute_force(discount, latency):
    noisy = problem(noise=0.1)
    key = stream_keys(3, stream=2)[0]
    wait = latency or [0.0, 0.0, 0.0]
    means = np.array([np.mean(row) for row in RECORDS]) + wait
    times = [[] for _ in RECORDS]
    running = [(row[0] + wait[i], i, X, row[0] + wait[i]) for i, row in enumerate(RECORDS)]
    x = X
    clocks = []
    for k in range(40):
        first = min(running, key=lambda task: task[:2])
        running.remove(first)
        clock, i, point, time = first
        before = [own for own in times if own]
        times[i] = [*times[i], time]

        def mean(own):
            return np.average(own, weights=(discount or 0.0) ** np.arange(len(own))[::-1])

        if discount is None:
            factor = means[i] / means.mean()
        elif any(mean(own) for own in before):
            factor = mean(times[i]) / np.mean([mean(own) for own in before])
        else:
            factor = 1.0
        noise = noisy.draw(derive_keys(key, k, np.zeros(1, np.int64))).item()
        x = x - 0.1 * factor * (A @ point - B + 0.3 * noisy.offsets(3)[i] + noise)
        clocks.append(clock)
        task = RECORDS[i][len(times[i]) % len(RECORDS[i])] + wait[i]
        running.append((clock + task, i, x, task))
    run = run_method(
        "rescaled-asgd",
        trace(RECORDS, latency=latency),
        noisy,
        updates=40,
        budget=3,
        seed=3,
        lr=0.1,
        discount=discount,
    )
    np.testing.assert_allclose(run.runtime, clocks)
    np.testing.assert_allclose(run.model.x.detach(), x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("power", [1, 0, -1])
def test_only_steps_in_proportion_to_task_times_lead_to_the_minimum(power):
    """Steps of tau^p end at the minimum of sum_i tau_i^(p - 1) f_i, or f for p = 1 alone.

    p = 0 is plain asynchronous SGD, p = -1 the power that the poster of Rescaled ASGD prints.
    """
    times = np.array([1.0, 3.0])

    class Powers(METHODS["rescaled-asgd"]):
        def factor(self, task):
            return super().factor(task) ** power

    shares = times ** (power - 1)
    away = 4 * 5 * 6 / 6 * (0.3 * (shares / shares.sum()) @ problem().offsets(2)) ** 2
    run = run_method(Powers, deterministic(times), problem(), updates=400, budget=1, lr=0.1)
    assert run.loss[-1] == pytest.approx(away, rel=0.1, abs=1e-3)
    assert (away > 0.1) == (power != 1)


@pytest.mark.parametrize(("discount", "bound"), [(1.0, np.inf), (0.9, 0.05), (0.0, 0.05)])
def test_what_a_change_of_speeds_does_to_the_minimum(discount, bound):
    """Worker 0 becomes ten times as slow, and worker 1 ten times as fast.

    A mean over all tasks lags behind; a discount follows.
    """
    pool = trace([[1.0] * 150 + [10.0] * 300, [10.0] * 15 + [1.0] * 3000])
    loss = run_method(
        "rescaled-asgd",
        pool,
        problem(),
        updates=500,
        budget=1,
        lr=0.1,
        discount=discount,
    ).loss[-11:]
    assert loss.mean() < bound
    assert (loss.mean() > 0.3) == (discount == 1.0)


def test_rescaled_asgd_says_what_it_cannot_know():
    endless = exponential([1.0]) + pareto(0.9, 1.0)
    with pytest.raises(ValueError, match="one of this pool is infinite: give discount, from 0 to"):
        MethodRun("rescaled-asgd", endless, problem(), budget=1)
    MethodRun("rescaled-asgd", endless, problem(), budget=1, discount=0.5)
    with pytest.raises(ValueError, match="discount must be a number of at least 0 and at"):
        MethodRun("rescaled-asgd", endless, problem(), budget=1, discount=1.5)


@pytest.mark.parametrize("name", METHODS)
def test_with_equal_data_all_is_as_ever_to_the_bit(name):
    equal, plain = (
        run_method(name, deterministic([1.0, 1.5, 4.0]), kind, updates=9, budget=4, lr=0.1)
        for kind in (problem(0.1, spread=0.0), Quadratic(4, 0.1))
    )
    assert torch.equal(weights(equal), weights(plain))
    assert equal.loss.tolist() == plain.loss.tolist()


def test_where_gradients_count_alike_training_ends_where_algebra_says():
    shares = np.array([3, 1])
    trainer = Trainer(problem(), 4, lr=1.0)
    pool = deterministic([1.0, 3.0])
    ends = {}
    for _ in range(300):
        trainer.step(shares)
    away = 4 * 5 * 6 / 6 * (0.3 * (shares / 4) @ problem().offsets(2)) ** 2
    for name in ("rennala", "asgd", "minibatch", "malenia", "ringleader"):
        ends[name] = run_method(name, pool, problem(), updates=400, budget=4, lr=0.5).loss[-1]
    assert (
        away == pytest.approx(trainer.evaluate()["suboptimality"]) == pytest.approx(ends["rennala"])
    )
    assert (
        max(ends["malenia"], ends["ringleader"], ends["minibatch"])
        < 1e-9
        < 0.1 * away
        < ends["asgd"]
    )
