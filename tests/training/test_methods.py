import heapq
import itertools

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.pools import deterministic, exponential, gamma, log_normal, trace
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.simulation.rounds import task_times
from ata_gym.training import Classification, Trainer
from ata_gym.training.methods import METHODS, MethodRun, run_method
from ata_gym.training.problems.quadratic import Quadratic

SAMPLES = torch.linspace(-1, 1, 40).reshape(20, 2), torch.arange(20) % 3
POOLS = {
    "mixed": exponential([1.0, 2.0]) + gamma(3.0, 0.5, shift=0.1) + deterministic([1.0]) + log_normal(0.0, 1.0),
    "ties": deterministic([1.0, 2.0, 1.0, 3.0, 2.0]),
    "one": exponential([3.0]),
    "by task": trace([[1.0, 5.0, 2.0], [0.3], [4.0, 0.7]]),
    "by round": trace([[1.0, 5.0, 2.0], [0.3, 9.0, 2.5], [4.0, 0.7, 0.7]], replay="round"),
}
CLOCK = ("runtime", "total_worker_time")
pools = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)


def small(d=4, noise=0.1):
    return Quadratic(d, noise)


def network():
    def build():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

    return Classification(build, SAMPLES, SAMPLES)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same(first, second, names=(*CLOCK, "used", "loss")):
    for name in names:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert torch.equal(weights(first.model), weights(second.model))


def race(pool, allocation, budget, rounds, seed):
    """The clock of an env that is raced with one allocation."""
    env = gymnasium.make("ata_gym/TaskRace-v0", pool=pool, budget=budget)
    env.reset(seed=seed)
    infos = [env.step(np.asarray(allocation))[-1] for _ in range(rounds)]
    return [[info[name] for info in infos] for name in CLOCK]


@pools
@pytest.mark.parametrize("budget", [1, 7])
def test_rennala_is_gta_in_time_to_the_bit(pool, budget):
    result = run_method("rennala", pool, small(), updates=40, budget=budget, seed=3)
    expected = race(pool, np.full(pool.n, budget), budget, 40, seed=3)
    np.testing.assert_array_equal([result.runtime, result.total_worker_time], expected)
    np.testing.assert_array_equal(result.used, budget * np.arange(1, 41))
    np.testing.assert_array_equal(result.computed, result.used)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("problem", [small(), network()], ids=["quadratic", "dropout"])
def test_rennala_is_gta_in_iterates_to_the_bit(problem, optimizer):
    result = run_method("rennala", POOLS["mixed"], problem, updates=30, budget=6, seed=5, optimizer=optimizer, lr=0.1)
    trainer = Trainer(problem, 6, seed=5, optimizer=optimizer, lr=0.1)
    assert result.loss.tolist() == [trainer.step() for _ in range(30)]
    assert torch.equal(weights(result.model), weights(trainer.model))


@pools
def test_synchronous_methods_are_races_with_a_task_for_each(pool):
    n = pool.n
    minibatch = run_method("minibatch", pool, small(), updates=30, budget=9, seed=1)
    np.testing.assert_array_equal(
        [minibatch.runtime, minibatch.total_worker_time], race(pool, np.ones(n, int), n, 30, 1)
    )
    trainer = Trainer(small(), n, seed=1)
    assert minibatch.loss.tolist() == [trainer.step() for _ in range(30)]
    for m in range(1, n + 1):
        some = run_method("m-synchronous", pool, small(), updates=30, budget=9, seed=1, m=m)
        np.testing.assert_array_equal([some.runtime, some.total_worker_time], race(pool, np.ones(n, int), m, 30, 1))
        np.testing.assert_array_equal(some.used, m * np.arange(1, 31))


@pools
def test_no_backup_workers_is_minibatch(pool):
    arguments = {"updates": 30, "budget": 4, "seed": 2}
    same(
        run_method("backup-workers", pool, small(), backup=0, **arguments),
        run_method("minibatch", pool, small(), **arguments),
    )


def test_ringmaster_with_a_threshold_of_one_is_the_fastest_worker_alone():
    pool = deterministic([2.5, 1.5, 3.0, 1.6])
    arguments = {"updates": 200, "budget": 5, "lr": 0.3}
    hero = run_method("ringmaster", pool, small(), max_delay=1, **arguments)
    alone = run_method("asgd", deterministic([1.5]), small(), **arguments)
    same(hero, alone, ("used", "loss"))
    np.testing.assert_allclose(hero.runtime, alone.runtime)
    np.testing.assert_allclose(hero.total_worker_time, 4 * alone.runtime)
    assert hero.computed[-1] > hero.used[-1] == 200


@pools
@pytest.mark.parametrize("name", ["ringmaster", "ringmaster-stops"])
def test_ringmaster_without_a_threshold_is_plain_asgd(name, pool):
    arguments = {"updates": 100, "budget": 5, "lr": 0.1, "seed": 4}
    same(run_method(name, pool, small(), max_delay=2**50, **arguments), run_method("asgd", pool, small(), **arguments))


@pools
def test_ringmaster_stopping_at_one_is_rennala_of_one(pool):
    arguments = {"updates": 60, "budget": 1, "lr": 0.1, "seed": 4}
    same(run_method("ringmaster-stops", pool, small(), **arguments), run_method("rennala", pool, small(), **arguments))


@pytest.mark.parametrize("threshold", [1, 2, 3, 10])
@pytest.mark.parametrize("name", ["ringmaster", "ringmaster-stops"])
def test_ringmaster_uses_no_gradient_as_late_as_its_threshold(name, threshold):
    delays = []

    class Watched(METHODS[name]):
        def arrive(self, server, task):
            before = server.updates
            delay = server.delay(task)
            super().arrive(server, task)
            delays.append((delay, server.updates - before))
            if name == "ringmaster-stops":
                assert not len(server.late(threshold))

    result = run_method(Watched, exponential([1.0, 1.0, 5.0, 20.0]), small(), updates=300, budget=threshold)
    assert all((delay < threshold) == used for delay, used in delays)
    assert min(threshold - 1, 3) <= max(delay for delay, used in delays if used) < threshold
    assert (result.computed[-1] == 300) == (name == "ringmaster-stops")


@pytest.mark.parametrize("name", METHODS)
def test_with_one_worker_and_one_gradient_all_methods_are_sgd(name):
    result = run_method(name, deterministic([2.0]), network(), updates=20, budget=1)
    trainer = Trainer(network(), 1, optimizer="sgd")
    assert result.loss.tolist() == [trainer.step() for _ in range(20)]
    assert torch.equal(weights(result.model), weights(trainer.model))
    np.testing.assert_array_equal([result.runtime, result.total_worker_time], 2 * [2.0 * np.arange(1, 21)])


def test_delay_adaptive_steps_by_hand():
    """Worker 0 arrives at 1, 2, 3, 4, 5, ...; worker 1 at 4.5 with delay 4."""
    result = run_method("delay-adaptive-asgd", deterministic([1.0, 4.5]), small(noise=0.0), updates=6, budget=1, lr=0.4)
    np.testing.assert_array_equal(result.runtime, [1, 2, 3, 4, 4.5, 5])
    a, b = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4, np.array([-0.25, 0, 0, 0])
    points = [np.array([2.0, 0, 0, 0])]
    for taken_at, scale in [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2 / 4), (4, 1)]:
        points.append(points[-1] - 0.4 * scale * (a @ points[taken_at] - b))
    np.testing.assert_allclose(result.model.x.detach(), points[-1], atol=1e-14)


def brute_force(pool, seed, updates, lr, threshold=np.inf, backup=None):
    """Asynchronous SGD with a threshold, or backup workers, told once more: one heap, everything spelled out."""
    problem, n = small(), pool.n
    a, b = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4, np.array([-0.25, 0, 0, 0])
    noise_key, key = stream_keys(seed, stream=2)[0], stream_keys(seed)
    x, k, started, queue, rows = np.array([2.0, 0, 0, 0]), 0, [0] * n, [], []
    busy, inbox, idle = 0.0, [], {}

    def start(worker, now):
        time = float(task_times(pool.distributions, key, 0, k, worker, started[worker])[0])
        started[worker] += 1
        heapq.heappush(queue, (now + time, worker, k, x, now))

    for worker in range(n):
        start(worker, 0.0)
    while len(rows) < updates:
        now, worker, version, point, since = heapq.heappop(queue)
        busy += now - since
        if backup is None:
            inbox = [point] if k - version < threshold else []
            full = bool(inbox)
        else:
            inbox += [point] if version == k else []
            full = len(inbox) == n - backup
            idle[worker] = version == k
        if full:
            noise = problem.draw(derive_keys(noise_key, k, np.arange(len(inbox)))).numpy()
            x, k = x - lr * (np.mean([a @ point - b for point in inbox], axis=0) + noise.mean()), k + 1
            rows.append((now, busy + sum(now - entry[-1] for entry in queue)))
            inbox = []
        if backup is None or not idle[worker]:
            start(worker, now)
            idle[worker] = False
        if full and backup is not None:
            for other in [i for i in range(n) if idle.get(i)]:
                start(other, now)
                idle[other] = False
    return x, np.array(rows).T


@pools
@pytest.mark.parametrize(
    ("name", "told", "hyperparameters"),
    [
        ("asgd", {}, {}),
        ("ringmaster", {"threshold": 2}, {"max_delay": 2}),
        ("backup-workers", {"backup": 0}, {"backup": 0}),
        ("backup-workers", {"backup": 2}, {"backup": 2}),
    ],
)
def test_times_and_iterates_agree_with_brute_force(pool, name, told, hyperparameters):
    if told.get("backup", 0) >= pool.n:
        pytest.skip("more backup workers than workers")
    x, clock = brute_force(pool, seed=6, updates=60, lr=0.2, **told)
    result = run_method(name, pool, small(), updates=60, budget=2, seed=6, lr=0.2, **hyperparameters)
    np.testing.assert_allclose([result.runtime, result.total_worker_time], clock, rtol=1e-12)
    np.testing.assert_allclose(result.model.x.detach(), x, rtol=1e-9, atol=1e-12)


def test_naive_optimal_asgd_leaves_slow_workers_idle():
    pool = deterministic([100.0, 1.0, 2.0])
    naive = run_method("naive-optimal-asgd", pool, small(), updates=50, budget=3)
    plain = run_method("asgd", deterministic([1.0, 2.0]), small(), updates=50, budget=3)
    same(naive, plain, ("runtime", "total_worker_time", "loss"))


@pools
@pytest.mark.parametrize("limit", ["median", "best"])
def test_mindflayer_on_the_clock(pool, limit):
    run = MethodRun("mindflayer", pool, small(), budget=5, seed=7, limit=limit)
    method, records = run.method, list(itertools.islice(run, 15))
    assert method.expected == pytest.approx(method.chances @ method.trials)
    assert 5 - 1e-6 <= method.expected <= 5 + method.chances.sum()
    started, runtime, worker_time, successes, key = np.zeros(pool.n, int), 0.0, 0.0, 0, stream_keys(7)
    for k, record in enumerate(records):
        spent = np.zeros(pool.n)
        for i in range(pool.n):
            times = task_times(pool.distributions, key, 0, k, i, started[i] + np.arange(method.trials[i]))
            successes += int((times <= method.time_limit[i]).sum())
            spent[i] = np.minimum(times, method.time_limit[i]).sum()
        started += method.trials
        runtime, worker_time = runtime + spent.max(), worker_time + spent.sum()
        assert record.runtime == pytest.approx(runtime, rel=1e-12)
        assert record.total_worker_time == pytest.approx(worker_time, rel=1e-12)
        assert record.used == record.computed == successes


def test_mindflayer_is_unbiased():
    problem, rate, count = small(noise=0.3), 1e-7, 4000
    result = run_method("mindflayer", POOLS["mixed"], problem, updates=count, budget=2, lr=rate)
    start = problem.build()
    (gradient,) = torch.autograd.grad(problem.loss(start, torch.zeros(1)).sum(), start.x)
    mean_step = (start.x - result.model.x).detach() / (rate * count)
    np.testing.assert_allclose(mean_step, gradient, atol=0.03)
    assert np.diff(result.used).std() > 0.5


@pools
@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_ssp_leads_by_no_more_than_its_bound(pool, staleness):
    delays = []

    class Watched(METHODS["ssp"]):
        def arrive(self, server, task):
            delays.append(server.delay(task))
            super().arrive(server, task)
            busy = np.setdiff1d(self.all_workers, server.idle)
            assert len(busy)
            assert (self.ended[busy] <= self.ended.min() + staleness).all()
            assert (self.ended[server.idle] > self.ended.min() + staleness).all()  # nobody waits in vain

    run_method(Watched, pool, small(), updates=300, budget=5, lr=0.01, staleness=staleness)
    assert max(delays) <= (pool.n - 1) * (2 * staleness + 1)


@pools
def test_ssp_without_staleness_is_synchronous(pool):
    """The sum of n gradients at the same weights, one after the other, is n times a step along their mean."""
    n = pool.n
    arguments = {"budget": 5, "seed": 8}
    ssp = run_method("ssp", pool, small(noise=0.0), updates=20 * n, lr=0.1, staleness=0, **arguments)
    whole = run_method("minibatch", pool, small(noise=0.0), updates=20, lr=0.1 * n, **arguments)
    np.testing.assert_allclose(weights(ssp.model), weights(whole.model), rtol=1e-12)


def test_ssp_without_staleness_ends_its_iterations_when_minibatch_does():
    pool, arguments = POOLS["mixed"], {"budget": 5, "seed": 8}
    ssp = run_method("ssp", pool, small(), updates=20 * pool.n, staleness=0, **arguments)
    whole = run_method("minibatch", pool, small(), updates=20, **arguments)
    np.testing.assert_allclose(ssp.runtime[pool.n - 1 :: pool.n], whole.runtime)
    np.testing.assert_allclose(ssp.total_worker_time[pool.n - 1 :: pool.n], whole.total_worker_time)


@pools
def test_ssp_without_a_bound_is_plain_asgd(pool):
    arguments = {"updates": 100, "budget": 5, "lr": 0.1, "seed": 4}
    same(
        run_method("ssp", pool, small(), staleness=2**50, **arguments),
        run_method("asgd", pool, small(), **arguments),
    )


@pools
def test_r2sp_updates_in_turn_with_bounded_delays(pool):
    seen = []

    class Watched(METHODS["r2sp"]):
        def proceed(self, server):
            before, waiting = server.updates, dict(self._waiting)
            super().proceed(server)
            assert server.updates - before <= 1
            if server.updates > before:
                (worker,) = waiting.keys() - self._waiting.keys()
                seen.append((worker, before - waiting[worker].update))

    result = run_method(Watched, pool, small(), updates=100, budget=5)
    workers, delays = zip(*seen, strict=True)
    assert list(workers) == [k % pool.n for k in range(100)]
    assert list(delays) == [min(k, pool.n - 1) for k in range(100)]
    np.testing.assert_array_equal(result.used, np.arange(1, 101))


def test_r2sp_by_hand():
    """Worker 0 takes 1, worker 1 takes 3: 0 updates at 1, waits from 2 to 3 for worker 1, and so on."""
    result = run_method("r2sp", deterministic([1.0, 3.0]), small(), updates=6, budget=1)
    np.testing.assert_array_equal(result.runtime, [1, 3, 3, 6, 6, 9])
    np.testing.assert_array_equal(result.total_worker_time, [2, 5, 5, 9, 9, 13])
