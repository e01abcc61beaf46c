import heapq
import itertools

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.pools import deterministic, exponential, gamma, log_normal, trace
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.simulation.task_times import task_times
from ata_gym.training import Classification, Trainer
from ata_gym.training.methods import METHODS, MethodRun
from ata_gym.training.problems.quadratic import Quadratic, QuadraticModel
from tests.training.small_problem import SAMPLES, run_method, weights

NETWORK = Classification(
    lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)),
    SAMPLES,
    SAMPLES,
)
POOLS = {
    "mixed": (
        exponential([1.0, 2.0])
        + gamma(3.0, 0.5, shift=0.1)
        + deterministic([1.0])
        + log_normal(0.0, 1.0)
    ),
    "ties": deterministic([1.0, 2.0, 1.0, 3.0, 2.0]),
    "one": exponential([3.0]),
    "by task": trace([[1.0, 5.0, 2.0], [0.3], [4.0, 0.7]]),
    "by round": trace([[1.0, 5.0, 2.0], [0.3, 9.0, 2.5], [4.0, 0.7, 0.7]], replay="round"),
    "latency": exponential([1.0, 2.0, 0.5]).with_latency(exponential([2.0, 1.0, 4.0])),
}
CLOCK = ("runtime", "total_worker_time")
WITH_MEMORY = {"rennala-mvr", "ringmaster-lmo"}
"""Methods whose steps are along more than the gradients of the update."""


def small(noise=0.1):
    return Quadratic(4, noise)


def clock(result):
    return [getattr(result, name) for name in CLOCK]


def race(pool, each, budget, rounds, seed):
    env = gymnasium.make("ata_gym/TaskRace-v0", pool=pool, budget=budget)
    env.reset(seed=seed)
    infos = [env.step(np.full(pool.n, each))[-1] for _ in range(rounds)]
    return [[info[name] for info in infos] for name in CLOCK]


@pytest.mark.parametrize(("name", "budget"), [*((name, 7) for name in POOLS), ("mixed", 1)])
def test_rennala_is_gta_in_time_to_the_bit(name, budget):
    pool = POOLS[name]
    result = run_method("rennala", pool, small(), updates=20, budget=budget, seed=3)
    np.testing.assert_array_equal(clock(result), race(pool, budget, budget, 20, seed=3))
    np.testing.assert_array_equal(result.used, budget * np.arange(1, 21))
    np.testing.assert_array_equal(result.computed, result.used)


@pytest.mark.parametrize(
    ("problem", "settings"),
    [
        (small(), {"optimizer": "sgd", "lr": 0.1}),
        (NETWORK, {"optimizer": "adam", "lr": 0.1}),
        (
            NETWORK,
            {
                "optimizer": "momentum",
                "micro_batch": 3,
                "schedule": "linear:9",
                "precision": "bfloat16",
            },
        ),
    ],
)
def test_rennala_is_gta_in_iterates_to_the_bit(problem, settings):
    result = run_method(
        "rennala",
        POOLS["mixed"],
        problem,
        updates=12,
        budget=6,
        seed=5,
        **settings,
    )
    trainer = Trainer(problem, 6, seed=5, **settings)
    assert result.loss.tolist() == [trainer.step() for _ in range(12)]
    assert torch.equal(weights(result), weights(trainer))


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_synchronous_methods_are_races_with_a_task_for_each(pool):
    n = pool.n
    minibatch = run_method("minibatch", pool, small(), updates=15, budget=9, seed=1)
    np.testing.assert_array_equal(clock(minibatch), race(pool, 1, n, 15, seed=1))
    trainer = Trainer(small(), n, seed=1)
    assert minibatch.loss.tolist() == [trainer.step() for _ in range(15)]
    for m in range(1, n):
        some = run_method("m-synchronous", pool, small(), updates=15, budget=9, seed=1, m=m)
        np.testing.assert_array_equal(clock(some), race(pool, 1, m, 15, seed=1))
        np.testing.assert_array_equal(some.used, m * np.arange(1, 16))


@pytest.mark.parametrize("name", [name for name in METHODS if name not in WITH_MEMORY])
def test_with_one_worker_and_one_gradient_all_methods_are_sgd(name):
    result = run_method(name, deterministic([2.0]), NETWORK, updates=6, budget=1)
    trainer = Trainer(NETWORK, 1, optimizer="sgd")
    assert result.loss.tolist() == [trainer.step() for _ in range(6)]
    assert torch.equal(weights(result), weights(trainer))
    np.testing.assert_array_equal(clock(result), 2 * [2.0 * np.arange(1, 7)])


def brute_force(pool, seed, updates, lr, *, threshold=np.inf, stops=False, batch=1, adaptive=False):
    """Asynchronous SGD with a threshold, or backup workers, told once more: one heap, everything
    spelled out.
    """
    a = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
    b = np.array([-0.25, 0, 0, 0])
    noise_key = stream_keys(seed, stream=2)[0]
    key = stream_keys(seed)
    x = np.array([2.0, 0, 0, 0])
    k = 0
    started = [0] * pool.n
    queue = []
    rows = []
    busy = 0.0
    ended = 0
    inbox = []
    waiting = []

    def start(worker, clock):
        time = float(task_times(pool.distributions, key, 0, k, worker, started[worker])[0])
        started[worker] += 1
        heapq.heappush(queue, (clock + time, worker, k, x, clock))

    for worker in range(pool.n):
        start(worker, 0.0)
    while len(rows) < updates:
        clock, worker, version, point, since = heapq.heappop(queue)
        busy = busy + clock - since
        ended = ended + 1
        if k - version >= threshold:  # too late
            start(worker, clock)
            continue
        inbox.append(point)
        waiting.append(worker)
        if len(inbox) == batch:
            noise = small().draw(derive_keys(noise_key, k, np.arange(batch))).numpy()
            if adaptive:
                rate = lr * pool.n / max(pool.n, k - version)
            else:
                rate = lr
            x = x - rate * (np.mean([a @ point - b for point in inbox], axis=0) + noise.mean())
            k = k + 1
            rows.append((clock, busy + sum(clock - entry[-1] for entry in queue), ended))
            late = [entry for entry in queue if stops and k - entry[2] >= threshold]
            busy += sum(clock - entry[-1] for entry in late)
            stopped = [entry[1] for entry in late]
            queue[:] = [entry for entry in queue if entry[1] not in stopped]
            heapq.heapify(queue)
            for other in waiting + stopped:
                start(other, clock)
            inbox = []
            waiting = []
    return x, np.array(rows).T


@pytest.mark.parametrize(
    ("pools", "name", "hyperparameters", "arguments"),
    [
        (("mixed", "by round"), "asgd", {}, {}),
        (("mixed", "ties"), "ssp", {"staleness": 2**50}, {}),
        (("mixed", "ties"), "delay-adaptive-asgd", {}, {"adaptive": True}),
        (("mixed", "one"), "ringmaster", {"max_delay": 1}, {"threshold": 1}),
        (("mixed", "ties", "by task"), "ringmaster", {"max_delay": 2}, {"threshold": 2}),
        (("mixed", "ties"), "ringmaster-stops", {"max_delay": 1}, {"threshold": 1, "stops": True}),
        (
            ("mixed", "by round"),
            "ringmaster-stops",
            {"max_delay": 2},
            {"threshold": 2, "stops": True},
        ),
        (
            ("ties", "by task"),
            "ringmaster-stops",
            {"max_delay": 3},
            {"threshold": 3, "stops": True},
        ),
        (("mixed", "by task"), "backup-workers", {"backup": 0}, {"threshold": 1}),
        (("mixed", "ties", "by round"), "backup-workers", {"backup": 2}, {"threshold": 1}),
    ],
)
def test_times_and_iterates_agree_with_brute_force(pools, name, hyperparameters, arguments):
    for pool in map(POOLS.__getitem__, pools):
        batch = pool.n - hyperparameters.get("backup", pool.n - 1)
        x, expected = brute_force(pool, seed=6, updates=40, lr=0.2, batch=batch, **arguments)
        result = run_method(
            name,
            pool,
            small(),
            updates=40,
            budget=2,
            seed=6,
            lr=0.2,
            **hyperparameters,
        )
        np.testing.assert_allclose([*clock(result), result.computed], expected, rtol=1e-12)
        np.testing.assert_array_equal(result.used, batch * np.arange(1, 41))
        np.testing.assert_allclose(result.model.x.detach(), x, rtol=1e-9, atol=1e-12)


def test_naive_optimal_asgd_leaves_slow_workers_idle():
    naive = run_method(
        "naive-optimal-asgd",
        deterministic([100.0, 1.0, 2.0]),
        small(),
        updates=20,
        budget=3,
    )
    two = run_method("asgd", deterministic([1.0, 2.0]), small(), updates=20, budget=3)
    np.testing.assert_array_equal(clock(naive), clock(two))
    assert torch.equal(weights(naive), weights(two))


@pytest.mark.parametrize("name", ["mixed", "ties", "by task"])
def test_mindflayer_on_the_clock(name):
    pool = POOLS[name]
    run = MethodRun("mindflayer", pool, small(), budget=5, seed=7)
    method = run.method
    records = list(itertools.islice(run, 8))
    assert method.expected == pytest.approx(method.chances @ method.trials)
    assert 5 - 1e-6 <= method.expected <= 5 + method.chances.sum()
    started = np.zeros(pool.n, int)
    runtime = 0.0
    worker_time = 0.0
    successes = 0
    key = stream_keys(7)
    for k, record in enumerate(records):
        spent = np.zeros(pool.n)
        for i in range(pool.n):
            times = task_times(
                pool.distributions,
                key,
                0,
                k,
                i,
                started[i] + np.arange(method.trials[i]),
            )
            successes += int((times <= method.time_limit[i]).sum())
            spent[i] = np.minimum(times, method.time_limit[i]).sum()
        started += method.trials
        runtime = runtime + spent.max()
        worker_time = worker_time + spent.sum()
        assert record.runtime == pytest.approx(runtime, rel=1e-12)
        assert record.total_worker_time == pytest.approx(worker_time, rel=1e-12)
        assert record.used == record.computed == successes


def test_mindflayer_is_unbiased():
    problem = small(noise=0.0)
    rate = 1e-7
    count = 1000
    result = run_method("mindflayer", POOLS["mixed"], problem, updates=count, budget=2, lr=rate)
    start = problem.build()
    (gradient,) = torch.autograd.grad(problem.loss(start, torch.zeros(1)).sum(), start.x)
    mean_step = (start.x - result.model.x).detach() / (rate * count)
    np.testing.assert_allclose(mean_step, gradient, atol=0.05)
    assert np.diff(result.used).std() > 0.5


@pytest.mark.parametrize(
    ("name", "staleness"),
    [("mixed", 0), ("mixed", 1), ("mixed", 4), ("ties", 1), ("by round", 1), ("one", 0)],
)
def test_ssp_leads_by_no_more_than_its_bound(name, staleness):
    pool = POOLS[name]
    delays = []

    class CountingSsp(METHODS["ssp"]):
        def arrive(self, server, task):
            delays.append(server.delay(task))
            super().arrive(server, task)
            busy = np.setdiff1d(self.workers, server.idle)
            assert len(busy)
            assert (self.ended[busy] <= self.ended.min() + staleness).all()
            assert (
                self.ended[server.idle] > self.ended.min() + staleness
            ).all()  # nobody waits in vain

    run_method(CountingSsp, pool, small(), updates=120, budget=5, lr=0.01, staleness=staleness)
    assert max(delays) <= (pool.n - 1) * (2 * staleness + 1)


def test_ssp_without_staleness_is_synchronous():
    """The sum of n gradients at the same weights, one after the other, is n times a step along
    their mean.
    """
    pool = POOLS["mixed"]
    n = POOLS["mixed"].n
    problem = small(noise=0.0)
    ssp = run_method("ssp", pool, problem, updates=8 * n, budget=5, lr=0.1, staleness=0)
    whole = run_method("minibatch", pool, problem, updates=8, budget=5, lr=0.1 * n)
    np.testing.assert_allclose(weights(ssp), weights(whole), rtol=1e-12)
    np.testing.assert_allclose(np.array(clock(ssp))[:, n - 1 :: n], clock(whole))


def test_r2sp_by_hand():
    """Worker 0 takes 1, worker 1 takes 3: 0 updates at 1, waits from 2 to 3 for worker 1, and so
    on; delays are 1.
    """
    problem = small(noise=0.0)
    lr = 0.1
    result = run_method("r2sp", deterministic([1.0, 3.0]), problem, updates=6, budget=1, lr=lr)
    np.testing.assert_array_equal(clock(result), [[1, 3, 3, 6, 6, 9], [2, 5, 5, 9, 9, 13]])
    points = [problem.build()]
    for k in range(6):
        start = points[-1].x
        earlier = points[max(k - 1, 0)]
        (gradient,) = torch.autograd.grad(problem.loss(earlier, torch.zeros(1)).sum(), earlier.x)
        points.append(QuadraticModel((start - lr * gradient).detach()))
    torch.testing.assert_close(result.model.x, points[-1].x)
