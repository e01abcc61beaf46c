"""The compiled rounds of the quadratic against those of torch."""

from __future__ import annotations

import numpy as np
import pytest

from ata_gym.bench.experiment.store import open_folder
from ata_gym.training import Trainer
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.training.studies.published.quadratic_figure import CompiledQuadratic
from ata_gym.training.studies.trajectory import train_once


def point(trainer):
    return trainer.model.x.detach().numpy().copy()


@pytest.mark.parametrize(
    ("dimension", "noise", "lr"), [(100, 0.001, 1e-4), (100, 0.001, 0.5), (1, 0.3, 0.1), (7, 0.0, 1.9)]
)
def test_losses_and_weights_are_those_of_the_trainer(dimension, noise, lr):
    problem, rounds = Quadratic(dimension, noise), 500
    compiled, torchs = CompiledQuadratic(problem, 5, lr=lr, seed=3), Trainer(problem, 5, lr=lr, seed=3)
    losses = [torchs.step() for _ in range(rounds)]
    at_once = compiled.leap(rounds)
    np.testing.assert_allclose(at_once, losses, rtol=1e-10, atol=1e-24)
    np.testing.assert_allclose(point(compiled), point(torchs), rtol=1e-10, atol=1e-14)
    each = CompiledQuadratic(problem, 5, lr=lr, seed=3)
    assert at_once.tolist() == [loss for k in (1, 2, 197, 300) for loss in each.leap(k)]
    assert point(compiled).tobytes() == point(each).tobytes()
    assert compiled.round == each.round == rounds
    for name, figure in torchs.evaluate().items():
        assert compiled.evaluate()[name] == pytest.approx(figure, rel=1e-6, abs=1e-14)


def test_it_ends_before_a_loss_that_is_not_finite():
    trainer = CompiledQuadratic(Quadratic(), 5, lr=1e30)
    losses = trainer.leap(100)
    assert np.isfinite(losses).all()
    assert trainer.round == len(losses) < 20
    before = point(trainer)
    with pytest.raises(FloatingPointError, match=f"in round {len(losses) + 1}: lower lr"):
        trainer.leap(100)
    assert point(trainer).tobytes() == before.tobytes()
    assert trainer.round == len(losses)


def test_a_trajectory_has_every_round_and_its_evaluations(tmp_path):
    whole = train_once(CompiledQuadratic(Quadratic(), 5), 90, open_folder(tmp_path / "a", {}), evaluate_every=40)
    torchs = train_once(Trainer("quadratic", 5), 90, open_folder(tmp_path / "b", {}), evaluate_every=40)
    assert Trainer("quadratic", 5).config() != CompiledQuadratic(Quadratic(), 5).config()  # they are not mixed
    assert whole.columns == torchs.columns
    for name in whole.columns:
        assert whole[name].is_null().to_list() == torchs[name].is_null().to_list()
        np.testing.assert_allclose(whole[name].drop_nulls(), torchs[name].drop_nulls(), rtol=1e-10)
