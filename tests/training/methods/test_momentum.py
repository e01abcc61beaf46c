"""Methods whose steps remember earlier gradients."""

import itertools

import numpy as np
import pytest
import torch

from ata_gym.pools import deterministic, trace
from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training.methods import METHODS, MethodRun
from ata_gym.training.methods.oracle import NORMS, spectral
from ata_gym.training.problems.quadratic import Quadratic
from tests.training.small_problem import run_method, weights

A = (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)) / 4
B = np.array([-0.25, 0, 0, 0])
X = np.array([2.0, 0, 0, 0])  # where training starts
RECORDS = [[1.0, 2.0, 0.5], [3.0, 1.0], [2.0, 0.25, 7.0, 1.0]]


class Stretched(Quadratic):
    """The quadratic with the gradient A x - b + z (x + 1): two points tell if z is the same."""

    def loss(self, model, batch):
        return self._suboptimality(model.x) + batch * (model.x + 1).square().sum() / 2


def sampled(problem, seed, k, tasks):
    return problem.draw(derive_keys(stream_keys(seed, stream=2)[0], k, np.arange(tasks))).numpy()


def pairs_of_one_round(started, budget, pair):
    """When the budget-th pair of tasks is in, the first in the order of ties by worker; all tasks
    that were started, and ended, and how long all were busy.
    """
    ends = [
        list(
            itertools.accumulate(
                RECORDS[i][(started[i] + j) % len(RECORDS[i])] for j in range(pair * budget)
            ),
        )
        for i in range(len(RECORDS))
    ]
    end = sorted(time for own in ends for time in own[pair - 1 :: pair])[budget - 1]
    return end, ends


@pytest.mark.parametrize("a", [0.1, 0.7])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_rennala_mvr_is_its_brute_force(a, clip):
    problem = Stretched(4, 0.3)
    budget = 3
    x = [X]
    v = None
    started = [0] * len(RECORDS)
    clocks = []
    now = 0.0
    for k in range(12):
        z = sampled(problem, 5, k, budget).mean()

        def gradient(point, z=z):
            return A @ point - B + z * (point + 1)

        g = gradient(x[-1])
        v = g if k == 0 else g + (1 - a) * (v - gradient(x[-2]))
        length = np.linalg.norm(v)
        step = v if clip is None else v * min(1.0, clip / (length + 1e-6))
        x.append(x[-1] - 0.2 * step)
        end, ends = pairs_of_one_round(started, budget, 1 if k == 0 else 2)
        # A worker starts its next task at once, but for the one whose task ended the round.
        now = now + end
        clocks.append(now)
        last = min(
            i
            for i, own in enumerate(ends)
            if end in own[(0 if k == 0 else 1) :: (1 if k == 0 else 2)]
        )
        for i, own in enumerate(ends):
            ended = sum(time < end or (time == end and i <= last) for time in own)
            started[i] += ended + (i != last)
    run = run_method(
        "rennala-mvr",
        trace(RECORDS),
        problem,
        updates=12,
        budget=budget,
        seed=5,
        lr=0.2,
        a=a,
        clip_norm=clip,
    )
    np.testing.assert_allclose(run.model.x.detach(), x[-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.runtime, clocks)
    np.testing.assert_array_equal(run.used, budget * (2 * np.arange(1, 13) - 1))


def test_with_a_of_1_rennala_mvr_is_rennala_in_iterates_and_pays_twice():
    pool = deterministic([1.0, 1.0, 4.0])
    problem = Stretched(4, 0.3)
    mvr, rennala = (
        run_method(name, pool, problem, updates=9, budget=2, lr=0.1, **arguments)
        for name, arguments in (("rennala-mvr", {"a": 1.0}), ("rennala", {}))
    )
    assert torch.equal(weights(mvr), weights(rennala))
    np.testing.assert_array_equal(rennala.runtime, np.arange(1, 10))
    np.testing.assert_array_equal(mvr.runtime, 2 * np.arange(1, 10) - 1)


@pytest.mark.parametrize("name", ["rennala-mvr", "ringmaster-lmo"])
def test_a_step_size_of_theory_that_was_not_read_is_refused(name):
    with pytest.raises(ValueError, match="no step size of theory is known for R"):
        METHODS[name](deterministic([1.0]), 1).step_size(1.0, 1.0, 1.0)


@pytest.mark.parametrize("a", [0.0, -0.1, 1.1, np.nan])
def test_a_is_a_share(a):
    with pytest.raises(ValueError, match="a must be a finite number above 0 and at most 1"):
        MethodRun("rennala-mvr", deterministic([1.0]), Quadratic(2), budget=1, a=a)


def farthest(norm, m):
    if norm == "sign":
        return np.sign(m)
    return m / np.linalg.norm(m)  # a vector is a matrix with one row: spectral is the same


@pytest.mark.parametrize("norm", ["euclidean", "sign", "spectral"])
@pytest.mark.parametrize(("max_delay", "alpha"), [(2, 0.3), (5, 1.0)])
def test_ringmaster_lmo_is_its_brute_force(norm, max_delay, alpha):
    problem = Stretched(4, 0.3)
    x = X
    m = None
    k = 0
    clocks = []
    started = [1] * len(RECORDS)
    running = [(row[0], i, 0, X) for i, row in enumerate(RECORDS)]
    while k < 40:
        first = min(running, key=lambda task: task[:2])
        running.remove(first)
        now, i, version, point = first
        if k - version < max_delay:
            g = A @ point - B + sampled(problem, 4, k, 1)[0] * (point + 1)
            m = g if m is None else (1 - alpha) * m + alpha * g
            x = x - 0.05 * farthest(norm, m)
            k = k + 1
            clocks.append(now)
        running.append((now + RECORDS[i][started[i] % len(RECORDS[i])], i, k, x))
        started[i] += 1
    run = run_method(
        "ringmaster-lmo",
        trace(RECORDS),
        problem,
        updates=40,
        budget=3,
        seed=4,
        lr=0.05,
        max_delay=max_delay,
        norm=norm,
        alpha=alpha,
    )
    np.testing.assert_allclose(run.model.x.detach(), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.runtime, clocks)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (6, 2, 3), (1, 7), (7, 1), (7,), ()])
def test_the_spectral_step_has_the_singular_vectors_of_the_momentum(shape):
    m = torch.from_numpy(np.random.default_rng(1).normal(size=shape))
    before = m.clone()
    (u,) = spectral([m])
    assert torch.equal(m, before)
    assert u.shape == m.shape
    rows = shape[0] if len(shape) > 1 else 1
    left, _, right = np.linalg.svd(m.numpy().reshape(rows, -1), full_matrices=False)
    core = left.T @ u.numpy().reshape(rows, -1) @ right.T
    if min(core.shape) == 1:
        assert core == pytest.approx(np.ones((1, 1)))
    np.testing.assert_allclose(core - np.diag(np.diag(core)), 0.0, atol=0.03)
    assert (np.diag(core) > 0.6).all()
    assert (np.diag(core) < 1.3).all()
    assert not spectral([torch.zeros(shape)])[0].any()


def test_parts_that_are_matrices_of_one_shape_have_the_steps_of_each_alone():
    rng = np.random.default_rng(3)
    shapes = [(6, 9), (9, 6), (6, 3, 3), (5,), (6, 9), (9, 6), (1, 5), (5,), (4, 4), ()]
    parts = [torch.from_numpy(rng.normal(size=shape)) for shape in shapes]
    parts[4] *= 1e-30  # one is much shorter than the others
    parts[5] *= 0.0
    parts[8] = parts[8].float()
    for part, step in zip(parts, spectral(parts), strict=True):
        (alone,) = spectral([part])
        assert (step.shape, step.dtype) == (part.shape, part.dtype)
        np.testing.assert_allclose(step, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (32, 144)])
def test_the_spectral_step_is_that_of_muon(shape):
    m = torch.from_numpy(np.random.default_rng(2).normal(size=shape)).float()
    point = torch.nn.Parameter(torch.zeros(shape))
    point.grad = m
    torch.optim.Muon([point], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()
    # Muon makes its steps longer for matrices with more rows than columns.
    longer = max(1.0, shape[0] / shape[1]) ** 0.5
    (u,) = spectral([m])
    # It computes in bfloat16, whose numbers have eight bits.
    assert (u + point.detach() / longer).norm() < 0.05 * u.norm()


@pytest.mark.parametrize("norm", ["euclidean", "sign", "spectral"])
def test_parts_without_a_gradient_stay_without_a_direction(norm):
    assert NORMS[norm]([]) == []
    method = METHODS["ringmaster-lmo"](deterministic([1.0]), 1, norm=norm)
    first, second = method._direction([None, torch.ones(2, 2)])
    assert first is None
    assert second is not None


@pytest.mark.parametrize("norm", ["euclidean", "sign", "spectral"])
def test_ringmaster_lmo_trains_a_network(norm):
    run = run_method(
        "ringmaster-lmo",
        deterministic([1.0, 2.5]),
        "digits",
        updates=120,
        micro_batch=32,
        budget=4,
        lr={"euclidean": 0.1, "sign": 0.002, "spectral": 0.05}[norm],
        norm=norm,
    )
    assert run.loss[-40:].mean() < 0.8 * run.loss[:40].mean()


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="there is no norm 'spectrall'; did you mean spectral"):
        MethodRun("ringmaster-lmo", deterministic([1.0]), Quadratic(2), budget=1, norm="spectrall")
