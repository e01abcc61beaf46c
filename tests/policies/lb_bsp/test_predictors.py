"""Predictors of speed: formulas by other means, rows alone, gaps, and who foresees what."""

import itertools
import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym.bench.experiment import Experiment
from ata_gym.utils.extras import MissingExtraError
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.lb_bsp.narx import Narx
from ata_policies.lb_bsp.predictors import Ema, Last, LastRound, Linear, Median, Predictor

torch = pytest.importorskip("torch", reason="the predictor narx: the extra train")

SMALL = Narx(lags=2, past=1, hidden=3, window=30, every=5, steps=2, warm_up=6)
PREDICTORS = {
    "last": Last(),
    "ema": Ema(),
    "median": Median(4),
    "linear": Linear(lags=3, warm_up=4),
    "narx": SMALL,
}


def loaded_speeds(
    rounds: int,
    n: int = 4,
    rows: int = 2,
    cpu: float = 0.0,
    memory: float = 0.0,
    noise: float = 0.2,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Speeds (E, K, n) that signals slow down, and the signals (E, K, n, 2)."""
    rng = np.random.default_rng(seed)
    load = np.empty((rows, rounds, n, 2))
    x = rng.standard_normal((rows, n, 2))
    for k in range(rounds):
        x = 0.9 * x + np.sqrt(1 - 0.9**2) * rng.standard_normal(x.shape)
        load[:, k] = 1 / (1 + np.exp(-1.5 * x))
    factor = (1 - cpu * load[..., 0] ** 4) * (1 - memory * load[..., 1])
    return (
        rng.uniform(0.5, 3, (rows, 1, n))
        * factor
        * np.exp(
            noise * rng.standard_normal(factor.shape),
        ),
        load,
    )


def gappy(speed: Any, seed: int = 0) -> Any:
    missing = np.random.default_rng(seed).random(speed.shape) < 0.3
    missing[..., 0] = False
    missing[:, :9, -1] = True  # and one that comes late
    return np.where(missing, np.nan, speed)


def forecasts(predictor: Predictor, speed: Any, signal: Any, seed: int = 3) -> tuple[Any, Any]:
    """The forecast of each round, and what is remembered in the end; nothing is changed in
    place.
    """
    memory = predictor.start(speed.shape[0], speed.shape[2], seed)
    last = np.full_like(speed[:, 0], np.nan)
    seen = []
    for k in range(speed.shape[1]):
        given = memory, last, signal[:, k]
        before = pickle.dumps(given)
        memory = predictor.advance(*given)
        assert pickle.dumps(given) == before
        last = speed[:, k]
        seen.append(memory.forecast)
    return np.stack(seen, axis=1), memory


def errors(predictor: Predictor, speed: Any, signal: Any) -> Any:
    """The root mean square of forecast minus speed, in mean speeds, after the first hundred rounds
    of each row (E,).
    """
    wrong = (forecasts(predictor, speed, signal)[0] - speed) / speed.mean(axis=1, keepdims=True)
    return np.sqrt(np.square(wrong[:, 100:]).mean(axis=(1, 2)))


@pytest.mark.parametrize("name", PREDICTORS)
def test_rows_are_the_same_alone_and_predictions_scale_with_the_speeds(name: str) -> None:
    speed, signal = loaded_speeds(60, rows=2, cpu=0.5, noise=1.0)
    speed = gappy(speed)
    predictor = PREDICTORS[name]
    batch, memory = forecasts(predictor, speed, signal)
    for e in range(2):
        alone, memory_alone = forecasts(predictor, speed[e : e + 1], signal[e : e + 1], seed=3 + e)
        np.testing.assert_array_equal(alone[0], batch[e])
        assert (
            difference(memory_alone, map_leaves(lambda leaf, e=e: leaf[e : e + 1], memory)) is None
        )
    scaled, _ = forecasts(predictor, 1024.0 * speed, signal)
    # it takes logarithms
    np.testing.assert_allclose(
        scaled,
        1024.0 * batch,
        rtol=1e-7 if name == "narx" else 0.0,
    )
    assert np.isnan(batch[:, 0]).all()
    assert (np.isnan(batch[:, :10, -1])).all()
    assert (batch[:, 11:] > 0).all()
    if name in {"linear", "narx"}:
        ratio = batch[:, -1] / (memory.ema if name == "linear" else np.exp(memory.level))
        assert (ratio >= 0.2 * (1 - 1e-12)).all()
        assert (ratio <= 5.0 * (1 + 1e-12)).all()


def test_without_a_sample_models_follow_the_signals() -> None:
    speed, signal = loaded_speeds(160, memory=0.7, noise=0.05)
    speed[:, 120:, 1] = np.nan
    for predictor in (Linear(), Narx(warm_up=50)):
        seen, _ = forecasts(predictor, speed, signal)
        assert np.corrcoef(seen[0, 121:, 1], signal[0, 121:, 1, 1])[0, 1] < -0.8


def test_averages_by_definition() -> None:
    speed, signal = loaded_speeds(30)
    speed = gappy(speed)
    last, ema, median = (forecasts(one, speed, signal)[0] for one in (Last(), Ema(0.3), Median(4)))
    for k, e, i in itertools.product(range(1, 30), range(2), range(4)):
        if (own := speed[e, :k, i][~np.isnan(speed[e, :k, i])]).size:
            weights = 0.3 * 0.7 ** np.arange(own.size)[::-1]
            weights[0] /= 0.3
            np.testing.assert_allclose(ema[e, k, i], weights @ own, rtol=1e-12)
            np.testing.assert_allclose(median[e, k, i], np.median(own[-4:]), rtol=1e-15)
            assert last[e, k, i] == own[-1]


@settings(max_examples=20)
@given(
    lags=st.integers(1, 5),
    past=st.integers(0, 2),
    warm_up=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_recursive_least_squares_is_least_squares(
    lags: int,
    past: int,
    warm_up: int,
    seed: int,
) -> None:
    """Of all samples after the warm-up, held by the ridge to the mean of the lags; without signals
    by those alone.
    """
    ridge = 0.7
    rounds = 40
    speed, signal = loaded_speeds(rounds, n=2, rows=1, cpu=0.6, seed=seed)
    model = Linear(lags=lags, past=past, ridge=ridge, warm_up=warm_up)
    _, memory = forecasts(model, speed, signal)
    plain, with_places = (
        forecasts(replace(model, past=q), speed, 0.0 * signal)[0] for q in (0, past)
    )
    np.testing.assert_allclose(plain, with_places, rtol=1e-9)
    for i in range(2):
        ema = speed[0, 0, i]
        for v in speed[0, 1:warm_up, i]:
            ema = 0.8 * ema + 0.2 * v
        # the history as seen from each round, filled with the first speed and with no load before
        # the start
        v = (
            np.concatenate([np.full(lags, speed[0, 0, i]), speed[0, :, i]])[: rounds - 1 + lags]
            / ema
        )
        c = np.concatenate([np.zeros((past, 2)), signal[0, :, i]])
        x = [
            [1.0, *v[k : k + lags], *c[k : k + past + 1].ravel()]
            for k in range(warm_up, rounds - 1)
        ]
        y = v[lags + warm_up :]
        prior = np.zeros(len(x[0]))
        prior[1 : 1 + lags] = 1 / lags
        root = np.sqrt(ridge) * np.eye(len(prior))
        expected = np.linalg.lstsq(
            np.vstack([x, root]),
            np.concatenate([y, root @ prior]),
            rcond=None,
        )[0]
        np.testing.assert_allclose(memory.weights[0, i], expected, rtol=1e-7, atol=1e-9)


def test_speeds_of_a_round() -> None:
    belief = LastRound.empty(1, 3).observe(np.array([[0, 0, 2]]), np.array([[1.0, 3.0, 0.5]]))
    np.testing.assert_array_equal(belief.speed(), [[0.5, np.nan, 2.0]])
    assert belief.untried().tolist() == [[False, True, False]]
    later = belief.observe(np.array([[1, 1, 1]]), np.array([[1.0, 1.0, 2.0]]))
    np.testing.assert_array_equal(later.speed(), [[np.nan, 0.75, np.nan]])
    np.testing.assert_array_equal(later.counts, [[2, 3, 1]])
    assert np.isnan(later.observe(np.full((1, 3), -1), np.zeros((1, 3))).speed()).all()


def test_the_network_is_the_same_in_torch_and_in_numpy_and_leaves_torch_as_it_was() -> None:
    threads = torch.get_num_threads()
    generator = torch.get_rng_state()
    speed, signal = loaded_speeds(20, cpu=0.5)
    _, memory = forecasts(SMALL, speed, signal)
    inputs = SMALL._scaled(memory.inputs, memory.scale[:, None, None])
    for e in range(2):
        output = SMALL._network(
            torch.tensor(memory.weights[e]),
            torch.tensor(inputs[e]),
            torch.tanh,
        ).numpy()
        np.testing.assert_allclose(
            np.log(memory.forecast[e]),
            memory.level[e] + memory.scale[e] * output,
            rtol=1e-9,
        )
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), generator)
    weights = SMALL.start(3, 2, seed=5).weights  # other seeds, other weights
    np.testing.assert_array_equal(SMALL.start(1, 2, seed=7).weights[0], weights[2])
    assert not (weights[0] == weights[1]).any()


def test_the_last_examples_are_remembered() -> None:
    """All samples but each worker's first, in the order of rounds and workers; the oldest are
    dropped.
    """
    (speed, signal), network = loaded_speeds(11), replace(SMALL, window=7, warm_up=99)
    _, memory = forecasts(network, gappy(speed), signal)
    asked: list[float] = []
    level: dict[int, list[float]] = {}
    for seen in gappy(speed)[0, :10]:
        for i in np.flatnonzero(~np.isnan(seen)):
            past = level.setdefault(int(i), [])
            if past:
                asked += [np.log(seen[i]) - np.mean(past)]
            past.append(np.log(seen[i]))
    np.testing.assert_allclose(memory.examples[0, :, -1], asked[-7:], rtol=1e-9)


def test_who_foresees_what() -> None:
    """Where signals drive the speed, in a curve, a network of them beats the others; where not, it
    gains nothing.
    """
    loaded = loaded_speeds(400, cpu=0.9, memory=0.3, noise=0.1)
    last, ema, linear, narx = (errors(one, *loaded) for one in (Last(), Ema(), Linear(), Narx()))
    assert (narx < 0.75 * np.minimum(ema, last)).all()
    assert (narx < 0.95 * linear).all()
    noise = loaded_speeds(400, noise=0.3)
    assert (abs(errors(Narx(), *noise) / errors(Ema(), *noise) - 1.0) < 0.05).all()


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[type[Predictor], str, tuple[float, ...]]] = [
        (Ema, "weight", (0.0, 1.5)),
        (Median, "window", (0,)),
        (Linear, "lags", (0,)),
        (Linear, "ridge", (0.0,)),
        (Narx, "past", (-1,)),
        (Narx, "warm_up", (0,)),
        (Narx, "decay", (0.0,)),
    ]
    for kind, name, wrong in cases:
        for value in wrong:
            with pytest.raises(ValueError, match=f"{name} must be"):
                kind(**{name: value})
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtraError,
        match=r'predictor narx needs torch: pip install "ata-gym\[train\]"',
    ):
        Narx()


def test_signals_reach_the_predictors() -> None:
    """Loads drive the speeds of ``changing-load``, which only who reads them foresees; of the
    hidden one, nobody.
    """
    found = {}
    for name in ("changing-load", "changing-load-hidden"):
        envs = Experiment.on_scenario(name, rounds=301, budget=1020, seeds=2).make_envs(
            "ata_gym/TaskAllocation-v0",
        )
        (seen, _), speeds, signals = envs.reset(seed=0), [], []
        for _ in range(300):
            signals.append(seen.get("signal", np.zeros((2, 51, 2))))
            seen = envs.step(np.full((2, 51), 20))[0]
            speeds.append(LastRound.empty(2, 51).observe(seen["worker"], seen["duration"]).speed())
        history = np.stack(speeds, axis=1), np.stack(signals, axis=1)
        found[name] = [errors(one, *history).mean() for one in (Ema(), Linear())]
    assert found["changing-load"][1] < 0.8 * found["changing-load"][0]
    np.testing.assert_allclose(
        found["changing-load-hidden"][1],
        found["changing-load-hidden"][0],
        rtol=0.2,
    )
