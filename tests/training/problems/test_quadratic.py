import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.training import Trainer, make_problem
from ata_gym.training.problems.quadratic import Point, Quadratic


def dense(d):
    a = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
    b = np.zeros(d)
    b[0] = -0.25
    return a, b


def keys(count, seed=0):
    return derive_keys(stream_keys(seed)[0], 0, np.arange(count))


def test_it_is_the_published_problem():
    problem = make_problem("quadratic")
    np.testing.assert_array_equal(problem.build().x.detach(), [10.0] + 99 * [0.0])
    assert problem.learning_rates == {"sgd": 1e-4}
    assert math.sqrt(problem.variance) == pytest.approx(0.01)


@settings(max_examples=20)
@given(d=st.integers(1, 30), seed=st.integers(0, 100))
def test_loss_and_gradients_are_those_of_the_dense_formula(d, seed):
    problem, (a, b) = Quadratic(d, noise=0.5), dense(d)
    x = np.random.default_rng(seed).normal(size=d)
    best = np.linalg.solve(a, b)
    gap = (x @ a @ x / 2 - b @ x) - (best @ a @ best / 2 - b @ best)
    point, batch = Point(torch.from_numpy(x)), problem.draw(keys(3, seed))
    losses = problem.loss(point, batch)
    np.testing.assert_allclose(losses.detach(), np.full(3, gap), rtol=1e-9)
    for b_th, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, point.x, retain_graph=True)
        np.testing.assert_allclose(gradient, a @ x - b + batch[b_th].item(), atol=1e-12)
    figures = problem.evaluate(point)
    assert figures["suboptimality"] == pytest.approx(gap, rel=1e-9)
    assert figures["gradient_norm"] == pytest.approx(np.linalg.norm(a @ x - b))


@pytest.mark.parametrize("d", [1, 2, 7, 100])
def test_the_constants_of_theory(d):
    problem, (a, b) = Quadratic(d, noise=0.3), dense(d)
    assert problem.smoothness == pytest.approx(np.linalg.eigvalsh(a).max())
    x = problem.build().x.detach().numpy()
    best = np.linalg.solve(a, b)
    assert problem.gap == pytest.approx((x - best) @ a @ (x - best) / 2)
    assert problem.evaluate(Point(torch.from_numpy(best)))["suboptimality"] == pytest.approx(0, abs=1e-25)
    noise = problem.draw(keys(20_000)).numpy()
    assert (noise**2).mean() * d == pytest.approx(problem.variance, rel=0.05)
    assert abs(noise.mean()) < 0.01


@pytest.mark.parametrize("kwargs", [{"dimension": 0}, {"dimension": 2.0}, {"noise": -1.0}, {"noise": math.nan}])
def test_bad_arguments(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))} must be"):
        Quadratic(**kwargs)


def test_another_model_is_refused():
    with pytest.raises(ValueError, match="trains a point, its own model, not Linear"):
        Trainer("quadratic", 1, model=nn.Linear(1, 1)).step()
