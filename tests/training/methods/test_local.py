"""Methods of local steps: their iterates, their clocks, and what policies decide in them."""

import itertools

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import ata_policies
from ata_gym.cli import app
from ata_gym.pools import deterministic, exponential, log_normal, trace
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.methods import MethodRun
from ata_gym.training.problems.quadratic import HeterogeneousQuadratic, Quadratic
from tests.training.small_problem import run_method, small

A = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
B = np.array([-0.25, 0, 0, 0])
X = np.array([2.0, 0, 0, 0])  # where training starts
SEED = 3
LR = 0.2
UNEQUAL = deterministic([1.0, 2.0, 4.0])  # 7 tasks are 4, 2 and 1 by ofta, and end together


def problem(noise=0.1, spread=0.3):
    return HeterogeneousQuadratic(4, noise, spread)


def path(x, worker, noise):
    """The points of a worker's local steps, and their gradients."""
    points = [x]
    gradients = []
    for z in noise:
        g = A @ points[-1] - B + z + 0.3 * problem().offsets(3)[worker]
        gradients.append(g)
        points.append(points[-1] - LR * g)
    return points, gradients


def samples(k, counts):
    """The noise of each worker's tasks in round k."""
    keys = derive_keys(stream_keys(SEED, stream=2)[0], k, np.arange(sum(counts)))
    return np.split(problem().draw(keys).numpy(), np.cumsum(counts)[:-1])


@pytest.mark.parametrize("average", ["mean", "normalised"])
@pytest.mark.parametrize(("outer_lr", "mu"), [(1.0, 0.0), (0.7, 0.9)])
def test_local_sgd_is_its_brute_force(average, outer_lr, mu):
    steps = [4, 2, 1]
    x = X
    momentum = np.zeros(4)
    for k in range(10):
        moved = [path(x, i, noise)[0][-1] - x for i, noise in enumerate(samples(k, steps))]
        if average == "mean":
            difference = sum(moved) / 3
        else:
            difference = 7 / 3 * sum(m / h for m, h in zip(moved, steps, strict=True)) / 3
        momentum = mu * momentum + difference
        x = x + outer_lr * (difference + mu * momentum)
    run = run_method(
        "local-sgd",
        UNEQUAL,
        problem(),
        updates=10,
        budget=7,
        seed=SEED,
        lr=LR,
        policy="ofta",
        average=average,
        outer_lr=outer_lr,
        outer_momentum=mu,
    )
    np.testing.assert_allclose(run.model.x.detach(), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(run.runtime, 4.0 * np.arange(1, 11))
    np.testing.assert_array_equal(run.used, 7 * np.arange(1, 11))


def coordinates(k, count):
    """The random coordinates of round k, by the method's own key."""
    key = derive_keys(stream_keys(SEED, stream=9)[0], k, 0)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(int(key)))
    return order[:count].numpy()


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize(
    ("density", "count", "end", "steps"),
    # Two steps each end after 2, 4 and 8; a whole message takes 3, 1 and 2.
    [(0.5, 2, 9.0, [9, 4, 2]), (1.0, 4, 10.0, [10, 5, 2]), (0.01, 1, 8.02, [8, 4, 2])],
)
def test_loscar_sgd_is_its_brute_force(corrected, density, count, end, steps):
    pool = UNEQUAL.with_latency([3.0, 1.0, 2.0])
    starts = [X, X, X]
    for k in range(8):
        paths = [path(starts[i], i, noise)[0] for i, noise in enumerate(samples(k, steps))]
        y = [points[2] for points in paths]
        z = [points[-1] for points in paths]
        starts = [point.copy() for point in z]
        for j in coordinates(k, count):
            mean = (y[0][j] + y[1][j] + y[2][j]) / 3
            for i in range(3):
                starts[i][j] = mean + (z[i][j] - y[i][j] if corrected else 0.0)
    run = MethodRun(
        "loscar-sgd",
        pool,
        problem(),
        budget=6,
        seed=SEED,
        lr=LR,
        policy="uta",
        density=density,
        corrected=corrected,
    )
    records = list(itertools.islice(run, 8))
    for worker, start in zip(run.method.x, starts, strict=True):
        np.testing.assert_allclose(worker[0], start, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.model.x.detach(), np.mean(starts, axis=0), rtol=1e-9)
    np.testing.assert_allclose([r.runtime for r in records], end * np.arange(1, 9))
    np.testing.assert_allclose([r.total_worker_time for r in records], 3 * end * np.arange(1, 9))
    assert records[-1].used == records[-1].computed == 8 * sum(steps)


def test_with_all_coordinates_and_no_overlap_loscar_sgd_is_local_sgd():
    local, loscar = (
        run_method(
            name,
            UNEQUAL,
            problem(),
            updates=9,
            budget=7,
            lr=LR,
            policy="ofta",
            **arguments,
        )
        for name, arguments in (("local-sgd", {}), ("loscar-sgd", {"density": 1.0}))
    )
    torch.testing.assert_close(local.model.x, loscar.model.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(local.runtime, loscar.runtime)
    np.testing.assert_allclose(local.loss, loscar.loss, rtol=1e-12)


@pytest.mark.parametrize("corrected", [True, False])
def test_the_model_is_the_mean_of_the_workers_of_a_network_with_frozen_weights(corrected):
    def build():
        network = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))
        network[0].bias.requires_grad_(False)
        return network

    run = MethodRun(
        "loscar-sgd",
        log_normal(0.0, [0.5, 1.0, 1.5]).with_latency(exponential([1.0, 5.0, 2.0])),
        small(build),
        budget=6,
        lr=0.5,
        density=0.3,
        corrected=corrected,
    )
    frozen = run.model[0].bias.clone()
    for _ in itertools.islice(run, 25):
        for part, *parts in zip(run.model.parameters(), *run.method.x, strict=True):
            torch.testing.assert_close(part.detach(), torch.stack(parts).mean(0))
    assert torch.equal(run.model[0].bias, frozen)
    assert all(torch.equal(worker[1], frozen) for worker in run.method.x)
    # Some coordinates differ by worker, since no message has had them.
    assert not torch.equal(run.method.x[0][0], run.method.x[1][0])


def test_with_one_step_each_local_sgd_is_minibatch():
    pool = exponential([1.0, 2.0, 5.0]).with_latency([0.5, 0.0, 1.0])
    local = run_method("local-sgd", pool, problem(), updates=12, budget=3, lr=LR, policy="uta")
    whole = run_method("minibatch", pool, problem(), updates=12, budget=3, lr=LR)
    torch.testing.assert_close(local.model.x, whole.model.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(local.runtime, whole.runtime)
    np.testing.assert_array_equal(local.total_worker_time, whole.total_worker_time)
    np.testing.assert_allclose(local.loss, whole.loss, rtol=1e-12)


def test_with_equal_steps_both_averages_are_the_same():
    mean, normalised = (
        run_method(
            "local-sgd",
            UNEQUAL,
            problem(),
            updates=9,
            budget=12,
            lr=LR,
            policy="uta",
            average=average,
        )
        for average in ("mean", "normalised")
    )
    torch.testing.assert_close(mean.model.x, normalised.model.x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("policy", ["default", "uta", "thompson", "lb-bsp-ema", "ata", "ofta"])
@pytest.mark.parametrize("latency", [None, [4.0, 0.0, 1.0, 2.0]])
def test_steps_and_clock_are_those_of_the_policy_in_its_env(policy, latency):
    pool = exponential([1.0, 2.0, 3.0, 8.0]).with_latency(latency)
    run = MethodRun("local-sgd", pool, Quadratic(2), budget=9, seed=SEED, policy=policy)
    env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=9)
    player = ata_policies.make(policy, env, seed=SEED)
    observation, _ = env.reset(seed=SEED)
    state = None
    for _ in range(15):
        action, state = player.predict(observation, state)
        np.testing.assert_array_equal(run.method.steps, action)
        observation, _, _, _, info = env.step(action)
        record = next(run)
        assert record.runtime == pytest.approx(info["runtime"])
        assert record.total_worker_time == pytest.approx(info["total_worker_time"])


def test_a_policy_that_is_made_already_decides():
    env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=UNEQUAL, budget=7)
    policy = ata_policies.make("certainty-equivalence", env)
    run = MethodRun("loscar-sgd", UNEQUAL, problem(), budget=7, lr=LR, policy=policy)
    next(run)
    next(run)
    assert run.method.steps.tolist() == [4, 2, 1]


def test_where_data_differ_unequal_steps_need_to_be_normalised():
    """The mean ends at the minimum of sum_i H_i f_i, but for what local steps lose."""
    mean, normalised = (
        run_method(
            "local-sgd",
            UNEQUAL,
            problem(noise=0.0),
            updates=200,
            budget=7,
            lr=0.1,
            policy="ofta",
            average=average,
        ).loss[-1]
        for average in ("mean", "normalised")
    )
    away = 4 * 5 * 6 / 6 * (0.3 * np.array([4, 2, 1]) / 7 @ problem().offsets(3)) ** 2
    assert mean == pytest.approx(away, rel=0.15)
    assert normalised < 0.02 * away


@pytest.mark.parametrize("average", ["mean", "normalised"])
def test_the_slowest_worker_takes_part_only_where_all_must(average):
    pool = deterministic([1.0, 1.0, 500.0])
    run = MethodRun("local-sgd", pool, Quadratic(2), budget=6, policy="ofta", average=average)
    next(run)
    assert run.method.steps[2] == (average == "normalised")


def test_recorded_times_that_end_in_the_overlap_stop_the_run():
    pool = trace([[1.0] * 9, [4.0] * 9], replay="task", end="truncate")
    run = MethodRun("loscar-sgd", pool, Quadratic(2), budget=2, policy="uta")
    # A round takes 4, in which worker 0 starts four steps and a fifth that is cancelled.
    assert [record.runtime for record in run] == [4.0]
    with pytest.raises(StopIteration):
        next(run)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("local-sgd", {"policy": "uuta"}, "no policy 'uuta'"),
        ("local-sgd", {"policy": "race"}, "plays ata_gym/TaskRace-v0"),
        ("local-sgd", {"average": "steps"}, "no average 'steps'"),
        ("local-sgd", {"average": "normalised"}, "at least the number of workers, 3, not 2"),
        ("local-sgd", {"outer_lr": 0.0}, "outer_lr must be a finite number above 0"),
        ("local-sgd", {"outer_momentum": 1.0}, "outer_momentum must be a number of at least 0"),
        ("local-sgd", {"optimizer": "adam", "lr": 0.1}, "do not go with optimizer='adam': choose"),
        ("loscar-sgd", {"clip_norm": 1.0}, "do not go with clip_norm: choose"),
        ("loscar-sgd", {"density": 0.0}, "density must be a finite number above 0"),
        ("loscar-sgd", {"density": 1.5}, "density must be a finite number above 0 and at most 1"),
        ("loscar-sgd", {"corrected": 1}, "corrected must be True or False"),
        ("loscar-sgd", {"outer_lr": 0.7}, "does not take these hyperparameters"),
        ("rennala", {"outer_lr": 0.7}, "does not take these hyperparameters"),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(name, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        MethodRun(name, UNEQUAL, Quadratic(2), budget=2, **arguments)


LINE = "train --scenario five-workers --policies uta --rounds 3 --methods local-sgd,loscar-sgd"


def test_they_train_beside_policies(tmp_path):
    result = CliRunner().invoke(app, f"{LINE} --out {tmp_path / 'run'}".split())
    assert result.exit_code == 0
    assert {"local-sgd", "loscar-sgd"} <= set(result.stdout.split())


def test_another_optimizer_is_refused_before_anything_runs(tmp_path):
    out = tmp_path / "run"
    result = CliRunner().invoke(app, f"{LINE} --optimizer adam --out {out}".split())
    assert result.exit_code != 0
    assert "local steps are steps of plain SGD" in result.stderr
    assert not out.exists()
