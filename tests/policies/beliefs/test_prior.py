"""Prior knowledge: the file, its errors, and what it gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ata_gym import proxy_loss
from ata_policies import Exposure, Moments, Setting, Totals
from ata_policies.beliefs.prior import read_prior, save_prior

BEST = "ata-empirical-icml"


def published(rows: int, **more: Any) -> Any:
    return gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, scenario="icml2025-regret", **more)


@settings(max_examples=25)
@given(
    counts=arrays(np.float64, (1, 4), elements=st.floats(0, 1e12).map(np.floor)),
    means=arrays(np.float64, (1, 4), elements=st.floats(0, 1e100)),
)
def test_round_trip(tmp_path_factory: Any, counts: Any, means: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "prior.csv"
    save_prior(path, Totals(counts, counts * means))
    again = read_prior(path)
    np.testing.assert_array_equal(again.counts, counts)
    np.testing.assert_allclose(again.totals, counts * means, rtol=4e-16)
    save_prior(path, again)
    np.testing.assert_allclose(read_prior(path).totals, again.totals, rtol=4e-16)


def test_rows_are_added_up_and_states_and_other_beliefs_will_do(play: Any, tmp_path: Path) -> None:
    path = tmp_path / "prior.csv"
    worker, time = np.array([[0, 0], [0, 1]]), np.array([[1.0, 2.0], [6.0, 4.0]])
    for learned in (Totals.empty(2, 2).observe(worker, time), Moments.empty(2, 2).observe(worker, time)):
        save_prior(path, learned)
        assert path.read_text() == "worker,tasks,mean\n0,3.0,3.0\n1,1.0,4.0\n"
    save_prior(path, play("ata-icml", 3, env=published(2)).states[-1])
    assert read_prior(path).counts.sum() == 2 * 2 * 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "first line must be worker,tasks,mean, not nothing"),
        ('{"worker": 0}', "first line must be"),
        ("worker,tasks,mean\n", "a line for each worker; there is none"),
        *((f"worker,tasks,mean\n{lines}\n", "in order from 0") for lines in ("1,2,3", "0,1,1\n0,1,1", "0,2,3,4")),
        *((f"worker,tasks,mean\n0,{line}\n", "could not convert") for line in ("two,3", ",3")),
        ("worker,tasks,mean\n0,1,1\n1,2\n", "number of columns"),
        *((f"worker,tasks,mean\n0,{line}\n", "finite and at least 0") for line in ("-1,3", "1,-3", "1e300,1e300")),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_prior(path)
    assert str(path) in str(caught.value)


def test_what_is_no_prior(refuses: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_prior(tmp_path / "nothing.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    one, path = np.ones((1, 2)), tmp_path / "prior.csv"
    save_prior(path, Totals(one[:, :1], one[:, :1]))
    for bad, message in [
        (Totals.empty(1, 3), "knows 3 workers; here are 2"),
        (Totals(-one, one), "counts must be finite"),
        (Totals(one, np.nan * one), "totals must be finite"),
        (Totals(0 * one, one), "totals must be 0 where counts are 0"),
        (Totals(one, one[:, :1]), "must both have shape"),
        (Exposure.empty(1, 2), "belief with counts and totals"),
        (3.0, "belief with counts and totals"),
        (str(path), "knows 1 workers; here are 2"),
        (tmp_path, "is a folder: name a file"),
        (tmp_path / "bytes", "cannot be read"),
    ]:
        refuses(BEST, message, Setting(n=2, budget=2), memory="prior", eta=1.0, prior=bad)


def test_every_episode_begins_with_the_prior_in_every_row(play: Any) -> None:
    prior = Totals(np.full((1, 20), 8.0), 2.0 * np.arange(20.0)[None])
    known = {"memory": "prior", "prior": prior, "prior_weight": 0.5}
    run = play(BEST, 12, env=published(2, horizon=4), hyperparameters=known)
    begun = [state.belief for seen, state in zip(run.seen, run.states, strict=True) if seen["worker"][0, 0] < 0]
    assert len(begun) == 3
    for belief in begun:
        np.testing.assert_array_equal(belief.counts, np.full((2, 20), 4.0))
        np.testing.assert_array_equal(belief.totals, np.tile(np.arange(20.0), (2, 1)))
    assert prior.counts[0, 0] == 8.0


def test_the_gain_of_an_earlier_run(play: Any, tmp_path: Path) -> None:
    """First 1,000 rounds of the regret setting, after as many of an earlier run with other seeds.

    Without a prior, or with one of weight 0, it is the plain policy; a wrong one only delays.
    """
    env, path = published(4), tmp_path / "prior.csv"
    means = env.unwrapped.pool.mean()
    save_prior(path, play(BEST, 1001, env=published(1), seed=100).states[-1])
    fixed = proxy_loss(play("ofta", 1, env=env).actions[0], means)

    def gain(**hyperparameters: Any) -> tuple[float, float, float]:
        run = play(BEST, 1000, env=env, hyperparameters=hyperparameters)
        losses = (proxy_loss(run.actions, means) - fixed).mean(axis=1)
        return losses.sum(), run.round_times.sum(), losses[-100:].mean()

    known = {"memory": "prior", "prior": path}
    without, half, whole = gain(), gain(**known, prior_weight=0.5), gain(**known)
    assert whole[0] < 0.5 * without[0]
    assert whole[0] < half[0] < without[0]
    assert whole[1] < half[1] < without[1]
    assert gain(memory="prior") == gain(**known, prior_weight=0.0) == without
    wrong = gain(memory="prior", prior=Totals(np.full((1, 20), 50.0), 50.0 * means[None, ::-1]))
    assert wrong[2] < 1.1 * without[2]
