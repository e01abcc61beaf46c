"""Estimates against their formulas and plain implementations: bounds, ATA, robust means, Thompson's
draws.
"""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.optimize import brentq

import ata_policies
from ata_gym import allocate, pools, proxy_loss, proxy_optimal
from ata_gym.scenarios import AtaConstants, Published, Scenario, scenario
from ata_gym.simulation.keys import stream_keys
from ata_policies import Setting, Totals
from ata_policies.allocation.estimates.ata import score
from ata_policies.allocation.estimates.bounds import cucb_score, kl_score, ucbv_score
from ata_policies.allocation.estimates.mots import draw_clipped
from ata_policies.allocation.estimates.robust import Catoni, MedianOfMeans, TruncatedMean
from ata_policies.allocation.estimates.thompson import draw_gammas, draw_means
from ata_policies.beliefs.moments import Moments, learn_shapes

BUDGET = 7
SCENARIO: dict[str, Any] = {
    "pool": pools.shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0)),
    "budget": BUDGET,
}


@settings(max_examples=40)
@given(
    counts=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    mean=st.floats(0.01, 1e4),
    variance=st.floats(0, 1e4),
    level=st.floats(0, 30),
    absolute=st.floats(0, 100),
    relative=st.floats(0, 2),
)
def test_formulas(counts, mean, variance, level, absolute, relative) -> None:
    # the last worker was never tried
    k = np.array([*counts, 0.0])
    b = absolute + relative * mean
    cucb = mean - b * np.sqrt(3 * level / (2 * k[:-1]))
    ucbv = mean - np.sqrt(2 * variance * level / k[:-1]) - 3 * b * level / k[:-1]
    f = np.sqrt(level / k[:-1]) + level / k[:-1]
    for found, expected in (
        (score(k, k * mean, level, absolute, relative), mean * (1 - relative * f) - absolute * f),
        (cucb_score(k, k * mean, level, absolute, relative), cucb),
        (ucbv_score(k, k * mean, k * variance, level, absolute, relative), ucbv),
    ):
        np.testing.assert_allclose(
            found,
            [*np.maximum(expected, 0.0), 0.0],
            rtol=1e-12,
            atol=1e-12 * (mean + b),
        )


@settings(max_examples=50)
@given(
    k=st.integers(1, 10**6),
    mean=st.floats(1e-3, 1e6),
    level=st.floats(1e-3, 50),
    shape=st.floats(0.1, 100),
)
def test_kl_by_root_finding(k: int, mean: float, level: float, shape: float) -> None:
    found = kl_score(*np.array([[k, 0], [k * mean, 0]], float), level, [shape, shape])

    def excess(
        ln_ratio: float,
    ) -> float:  # of mean / q; expm1 keeps the digits of a small divergence
        return k * shape * (math.expm1(ln_ratio) - ln_ratio) - level

    most = math.log(2 + 2 * level / (k * shape) + 2 * math.sqrt(level / (k * shape)))
    root = brentq(excess, 0, most + 1, xtol=1e-15, rtol=1e-14)
    np.testing.assert_allclose(found, [mean * math.exp(-root), 0.0], rtol=1e-7)


@pytest.mark.parametrize("name", ["cucb", "ucb-v"])
def test_a_given_scale_replaces_the_means(play: Any, name: str) -> None:
    """A larger scale keeps every score at 0 for longer: the allocation stays even."""
    for constant in ("scale", "width"):
        far, near = (
            play(name, 30, hyperparameters={constant: b}, **SCENARIO).actions for b in (1e6, 1e-6)
        )
        assert far[2:].max() <= 1
        assert near[-1].max() > 1


POOL = pools.shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])


def fitted(name: str, **options: Any) -> tuple[float, str]:
    env = gym.make("ata_gym/TaskAllocation-v0", **options)
    policy: Any = ata_policies.make(name, env)
    return (
        getattr(policy.estimate, policy.estimate.bound),
        policy.explain(
            policy.first_state(1),
        ).plan,
    )


ALL = ("ata", "ata-icml", "ata-empirical", "ata-empirical-icml")


@pytest.mark.parametrize("name", ALL)
def test_constants_and_where_they_come_from(refuses: Any, name: str) -> None:
    if "empirical" in name:
        hyperparameter = "eta"
    else:
        hyperparameter = "alpha"
    if "icml" in name:
        factor = 2
    else:
        factor = 4 * math.e

    def value(policy: Any) -> float:
        v = getattr(policy.estimate, hyperparameter)
        # so many tasks that the bound is above 0
        m = 3.0
        k = 1e12
        level = math.log(2.0)
        belief = Totals(np.full((1, 1), k), np.full((1, 1), k * m))
        found = policy.estimate.scores(belief, np.array([1]), stream_keys(0)).score[0, 0]
        if hyperparameter == "alpha":
            unit = 1.0
        else:
            unit = m
        f = math.sqrt(level / k) + level / k
        np.testing.assert_allclose((m - found) / (unit * f), factor * v, rtol=1e-4)
        return float(v)

    by_definition = {"alpha": 1.5313468 * 29 * 51, "eta": 1.5313468 / 2}
    if "icml" in name:
        expected = by_definition
    else:
        expected = {"alpha": 5916.0, "eta": 2.0}
    found, words = fitted(name, scenario="icml2025-cifar100")
    np.testing.assert_allclose(found, expected[hyperparameter], rtol=1e-6)
    assert (", as published" in words) == ("icml" not in name)
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=3)
    given = ata_policies.make(name, env, **{hyperparameter: 3.5})
    assert (given.explain(given.first_state(1)).plan, value(given)) == (
        f"{hyperparameter} = 3.5, as given",
        3.5,
    )
    norms = POOL.psi1_norm(centred="icml" in name)
    assert (
        fitted(name, pool=POOL, budget=3)[0]
        == (norms if "alpha" in hyperparameter else norms / POOL.mean()).max()
    )
    narrow, words = fitted(f"{name}:width=0.1", scenario="icml2025-cifar100")
    assert narrow == 0.1 * found
    assert words.endswith("times 0.1")
    of_pool, words = fitted(f"{name}:norms=pool", scenario="icml2025-cifar100")
    assert "published" not in words
    assert (
        of_pool == scenario("icml2025-cifar100").pool.psi1_norm(centred="icml" in name).max()
        or "eta" in words
    )
    refuses(name, '"published" or "pool", not \'own\'', norms="own")
    refuses(name, "width must be a finite number above 0", width=0.0)
    refuses(name, f"give {hyperparameter}=.*no pool or scenario is known")


def test_constants_belong_to_a_version() -> None:
    one = Scenario(POOL, 3, published=Published(AtaConstants(alpha=7.0), AtaConstants(eta=0.5)))
    assert [fitted(name, scenario=one)[0] for name in ("ata", "ata-empirical-icml")] == [7.0, 0.5]
    norms = [POOL.psi1_norm(centred=True).max(), (POOL.psi1_norm() / POOL.mean()).max()]
    assert [fitted(name, scenario=one)[0] for name in ("ata-icml", "ata-empirical")] == norms


@pytest.mark.parametrize("name", ALL)
def test_a_norm_that_is_infinite_counts_as_that_of_exponential_times_and_is_named(
    name: str,
) -> None:
    light = pools.exponential([10.0, 1.0])
    heavy = pools.log_normal([0.0, 1.0], 1.0)
    mean = np.exp([0.5, 1.5])
    replaced = {
        "ata": 2.0,
        "ata-icml": 1.5313468,
        "ata-empirical": 2.0,
        "ata-empirical-icml": 1.5313468,
    }[name]
    value, words = fitted(name, pool=heavy, budget=3)
    np.testing.assert_allclose(
        value,
        replaced * (1.0 if "empirical" in name else mean.max()),
        rtol=1e-6,
    )
    assert words.endswith(", where infinite the norm of exponential times of the same mean")
    # the finite norm of a slower worker still counts
    mixed, _ = fitted(
        name,
        pool=heavy + light,
        budget=3,
    )
    np.testing.assert_allclose(mixed, replaced * (1.0 if "empirical" in name else 10.0), rtol=1e-6)
    assert "infinite" not in fitted(name, pool=light, budget=3)[1]
    endless = pools.pareto(0.9, [1.0, 2.0])
    if "empirical" in name:
        np.testing.assert_allclose(fitted(name, pool=endless, budget=3)[0], replaced, rtol=1e-6)
    else:
        with pytest.raises(
            ValueError,
            match=r"give alpha=.*every worker's psi1 norm of .*: here it is inf",
        ):
            fitted(name, pool=endless, budget=3)


@pytest.mark.parametrize("families", [("exponential", "uniform"), ("gamma", "log-normal")])
@pytest.mark.parametrize("name", ALL)
def test_of_drawn_workers_the_largest_norm_that_can_be_drawn_counts(
    name: str,
    families: tuple[str, ...],
) -> None:
    drawn = pools.PoolDistribution(40, families=families, heterogeneity=(2.0, 30.0), cv=(0.2, 1.3))
    (value, words), norms = (
        fitted(name, pool=drawn, budget=3),
        drawn.catalogue.psi1_norm(centred="icml" in name),
    )
    assert " that can be drawn" in words
    assert ("infinite" in words) == bool(np.isinf(norms).any()) == ("log-normal" in families)
    norms[np.isinf(norms)] = pools.exponential([1.0]).psi1_norm(centred="icml" in name)[0]
    np.testing.assert_allclose(value, norms.max() * (1.0 if "empirical" in name else 30.0))


@pytest.mark.parametrize("name", ALL)
def test_lower_bounds_exceed_a_mean_as_seldom_as_the_theorem_says(play: Any, name: str) -> None:
    """After a number of tasks with a chance of 1 / (2 k^2) at most; with a hundredth of the
    constant more often.
    """
    pool = pools.exponential([1.0, 2.0, 3.0])
    rounds = 60
    constant = fitted(name, pool=pool, budget=3)[0]
    shares = []
    for part in (1.0, 0.01):
        given = {"eta" if "empirical" in name else "alpha": part * constant}
        run = play(name, rounds, 50, pool=pool, budget=3, hyperparameters=given)
        policy: Any = ata_policies.load(name)(Setting(n=3, budget=3), **given)
        above = [
            policy.estimate.scores(s.belief, s.round, s.round_keys()).score > pool.mean()
            for s in run.states
        ]
        shares.append(np.mean(above))
    theorem = np.mean(0.5 / np.arange(1.0, rounds + 1) ** 2)
    assert shares[0] <= theorem < shares[1]


def test_times_that_do_not_vary_have_a_centred_norm_of_0(play: Any) -> None:
    for pool in (pools.deterministic([3.0, 5.0]), pools.trace([[1.0, 1.0], [2.0]])):
        assert [
            fitted(name, pool=pool, budget=3)[0] for name in ("ata-icml", "ata-empirical-icml")
        ] == [0.0, 0.0]
        assert (
            play("ata-icml", 4, 1, pool=pool, budget=3).actions[3, 0].tolist()
            == proxy_optimal(pool, 3).tolist()
        )


def kl_of_shape_2(counts: Any, totals: Any, k: int) -> Any:
    return kl_score(counts, totals, math.log(k), np.full(8, 2.0))


def ata_by_hand(counts: Any, totals: Any, k: int) -> Any:
    ratio = math.log(2 * k * k) / np.maximum(counts, 1e-9)
    return totals / np.maximum(counts, 1.0) - 4 * math.e * 0.01 * (np.sqrt(ratio) + ratio)


def mean(counts: Any, totals: Any, k: int) -> Any:
    del k
    return totals / np.maximum(counts, 1.0)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("kl-lcb:shape=2.0", kl_of_shape_2),
        ("ata:alpha=0.01", ata_by_hand),
        ("certainty-equivalence", mean),
    ],
)
def test_actions_follow_the_formula_of_the_scores_along_a_run(
    play: Any,
    name: str,
    scores: Any,
) -> None:
    """Workers never tried come first; where all scores are positive, an action is RAS of them."""
    run = play(name, 60, 4, **SCENARIO)
    checked = 0
    for k, (actions, state) in enumerate(zip(run.actions, run.states, strict=True), start=1):
        for action, counts, totals in zip(
            actions,
            state.belief.counts,
            state.belief.totals,
            strict=True,
        ):
            untried = counts == 0
            s = scores(counts, totals, k)
            assert (np.sort(action[untried])[::-1] == (np.arange(untried.sum()) < BUDGET)).all()
            if (s > 0).all():
                np.testing.assert_array_equal(action, allocate(s, BUDGET))
                checked += 1
    assert checked > 160


TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=70)


def found(estimate: Any, times: list[float]) -> float:
    """The robust mean of one worker's times, which all come in one round; for a truncated mean, in
    rounds of one.
    """
    if isinstance(estimate, MedianOfMeans | Catoni):
        rounds = np.array([times])
    else:
        rounds = np.array(times)[:, None]
    belief = estimate.start(1, 1)
    for time in rounds:
        belief = belief.observe(np.zeros((1, len(time)), np.int64), time[None])
    return float(estimate.mean(estimate.updated(belief))[0, 0])


def block_means(times: list[float], blocks: int) -> list[float]:
    return [float(np.mean(times[b::blocks])) for b in range(blocks)]


def plain_median_of_means(times: list[float], most: int) -> float:
    blocks = max(b for b in (1, 2, 4, 8, 16) if b == 1 or (b <= most and 2 * b <= len(times)))
    return float(np.median(block_means(times, blocks)))


def plain_catoni(times: list[float], most: int, moment: float) -> float:
    """The published A for the blocks' means and their variance, with L a quarter of their
    number.
    """
    blocks = min(most, len(times))
    y = np.array(block_means(times, blocks))
    level = blocks / 4
    v = moment * np.median(y) ** 2 * blocks / len(times)
    a = math.sqrt(2 * level / (blocks * (v + 2 * v * level / (blocks - 2 * level))))
    if y.max() - y.min() < 1e-12 * y.max():
        return float(y[0])

    def influence(m: float) -> float:
        x = a * (y - m)
        return float((np.sign(x) * np.log(1 + abs(x) + x**2 / 2)).sum())

    return float(brentq(influence, y.min(), y.max(), xtol=1e-15 * y.max(), rtol=1e-14))


def plain_truncated(times: list[float], rounds: list[int], moment: float) -> float:
    total = times[0]
    for j in range(2, len(times) + 1):
        m = total / (j - 1)
        level = 2 * math.log(rounds[j - 1])
        total += min(
            times[j - 1],
            math.inf if level == 0 else max(m, m * math.sqrt(moment * j / level)),
        )
    return total / len(times)


@settings(max_examples=50)
@given(times=TIMES, blocks=st.sampled_from([2, 4, 8, 16]), moment=st.floats(0.1, 50))
def test_the_estimators_are_their_plain_implementations(
    times: list[float],
    blocks: int,
    moment: float,
) -> None:
    assert found(MedianOfMeans(blocks=blocks), times) == pytest.approx(
        plain_median_of_means(times, blocks),
        rel=1e-12,
    )
    assert found(Catoni(moment, blocks=blocks), times) == pytest.approx(
        plain_catoni(times, blocks, moment),
        rel=1e-7,
    )
    rounds = list(range(1, len(times) + 1))
    assert found(TruncatedMean(moment), times) == pytest.approx(
        plain_truncated(times, rounds, moment),
        rel=1e-12,
    )


@pytest.mark.parametrize("estimate", [MedianOfMeans(blocks=8), Catoni()])
def test_means_are_worked_out_where_results_are_new(estimate: Any) -> None:
    rng = np.random.default_rng(0)
    belief = estimate.start(3, 5)
    for _ in range(60):
        belief = estimate.updated(
            belief.observe(rng.integers(-1, 5, (3, 2)), rng.pareto(1.5, (3, 2)) + 1.0),
        )
    blank = belief._replace(mean_counts=0.0 * belief.counts, means=0.0 * belief.counts)
    np.testing.assert_allclose(belief.means, estimate.updated(blank).means, rtol=1e-8)
    marked = belief._replace(means=np.full((3, 5), 7.0))
    assert (estimate.updated(marked).means == 7.0).all()


@pytest.mark.parametrize(
    ("name", "width", "offset"),
    [("median-of-means", 12 * 16, 1 / 8), ("catoni", 4, 0.0), ("truncated-mean", 16, 0.0)],
)
def test_the_bounds_are_the_published_ones(
    play: Any,
    name: str,
    width: float,
    offset: float,
) -> None:
    """Scores are mean - radius * published radius, sqrt(width v (..) / K), at most the mean, and 0
    below it.
    """
    make: Any = ata_policies.load(name)
    policy = make(Setting(n=6, budget=BUDGET), moment=3.0, radius=0.05)
    assert policy.estimate.width == pytest.approx(width)
    state = play(
        policy,
        50,
        2,
        pool=pools.log_normal(np.log(np.arange(1.0, 7)), 1.5),
        budget=BUDGET,
    ).states[-1]
    means = np.arange(1.0, 13).reshape(2, 6)
    level = 2 * math.log(50) + offset
    published = means * math.sqrt(width * 3.0) * np.sqrt(level / np.maximum(state.belief.counts, 1))
    lower = np.maximum(means - 0.05 * published, 0.0)
    assert (state.round == 50).all()
    belief = state.belief
    if name == "truncated-mean":
        belief = belief._replace(totals=means * np.maximum(belief.counts, 1))
    else:
        belief = belief._replace(means=means)
    found = policy.estimate.scores(belief, state.round, state.round_keys()).score
    tried = belief.counts > 0
    np.testing.assert_allclose(found[tried], lower[tried], rtol=1e-12)
    allocations = (allocate(one, BUDGET, state.round_keys(), ~tried) for one in (found, lower))
    np.testing.assert_array_equal(*allocations)


@pytest.mark.parametrize("shape", [0.02, 0.999, 1.0, 1.1, 4.0, 1e3, 1e8])
def test_gamma_draws_follow_their_distribution(shape: float) -> None:
    drawn = draw_gammas(np.full((400, 100), shape), stream_keys(7, rows=400))
    assert stats.kstest(drawn.ravel(), stats.gamma(shape).cdf).pvalue > 0.01
    assert stats.kstest(drawn[:, 0], stats.gamma(shape).cdf).pvalue > 0.01
    np.testing.assert_allclose(drawn.mean(), shape, rtol=5 * 200**-1 / shape**0.5)


def test_gamma_draws_have_their_tails() -> None:
    """A million numbers of shape 1, where every twentieth is refused: counts beyond far quantiles
    are as expected.
    """
    drawn = draw_gammas(np.ones((1000, 1000)), stream_keys(3, rows=1000)).ravel()
    for share in (1e-4, 1e-3, 1e-2):
        for count in ((drawn > -np.log(share)).sum(), (drawn < -np.log1p(-share)).sum()):
            assert stats.binomtest(int(count), drawn.size, share).pvalue > 1e-3


def test_gamma_draws_are_independent() -> None:
    """Neighbouring workers and neighbouring keys are uncorrelated; one more worker changes nobody's
    number.
    """
    drawn = draw_gammas(np.full((1000, 100), 2.0), stream_keys(11, rows=1000))
    keys = stream_keys(11, rows=1000)
    for one, other in ((drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / 1000**0.5 / 10
    fewer = draw_gammas(np.full((1, 50), 2.0), keys[7:8])[0]
    np.testing.assert_array_equal(fewer, drawn[7, :50])


@pytest.mark.parametrize(("shape", "prior"), [(1.0, 0.0), (4.0, 0.0), (0.5, 2.0)])
def test_means_follow_the_posterior(shape: float, prior: float) -> None:
    """5 tasks of total time 20: 1 / mean is Gamma(prior + 5 shape, rate 20 shape)."""
    rows = 4000
    drawn = draw_means(
        np.full((rows, 1), 5.0),
        np.full((rows, 1), 20.0),
        shape,
        stream_keys(1, rows),
        prior,
    )
    distribution = stats.invgamma(prior + 5 * shape, scale=20 * shape)
    assert stats.kstest(drawn[:, 0], distribution.cdf).pvalue > 0.01


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
    mean=st.floats(1e-100, 1e100),
    shape=st.one_of(st.floats(1e-300, 1e-3), st.floats(1e-3, 1e12)),
)
def test_draws_and_means_are_finite(counts: list[int], mean: float, shape: float) -> None:
    k = np.array([counts], np.float64)
    keys = stream_keys(0)
    drawn = draw_gammas(shape * k, keys)
    assert np.isfinite(drawn).all()
    assert (drawn >= 0).all()
    assert (drawn[k == 0] == 0).all()
    means = draw_means(k, k * mean, max(shape, 1e-3), keys)
    assert np.isfinite(means).all()
    assert ((means == 0) == (k == 0)).all()


@settings(max_examples=50)
@given(
    times=st.lists(st.lists(st.floats(0.01, 100), max_size=8), min_size=1, max_size=5),
    weight=st.floats(0.1, 100),
)
def test_shapes_by_their_formula(times: list[list[float]], weight: float) -> None:
    n = len(times)
    worker = np.array([[i for i in range(n) for _ in times[i]]], np.int64)
    belief = Moments.empty(1, n).observe(
        worker,
        np.array([[x for own in times for x in own]], np.float64),
    )
    q = [len(own) * np.var(own) / np.mean(own) ** 2 if own else 0.0 for own in times]
    free = [max(len(own) - 1, 0) for own in times]
    common = (1 + sum(q)) / (1 + sum(free))
    expected = [(weight + free[i]) / (weight * common + q[i]) for i in range(n)]
    np.testing.assert_allclose(learn_shapes(belief, weight)[0], expected, rtol=1e-9)


def test_a_known_or_learned_shape_learns_faster(play: Any) -> None:
    pool = pools.gamma(np.full(10, 9.0), np.arange(1.0, 11.0) / 9.0)
    best = proxy_loss(proxy_optimal(pool, 7), pool.mean())
    plain, known, learned = (
        proxy_loss(play(name, 300, 8, pool=pool, budget=7).actions, pool.mean()).mean() / best - 1
        for name in ("thompson", "thompson:shape=9.0", "thompson-gamma")
    )
    assert known < 0.6 * plain
    assert learned < 0.7 * plain


@pytest.mark.parametrize("shape", [1.0, 9.0])
def test_motss_draws_are_normal_but_clipped(shape: float) -> None:
    """They have the quantiles of scipy's normal distribution, clipped at the bound of MOSS; the
    worker with most tasks has the bound m, and one never tried 0.
    """
    rho, alpha, mean = 0.9, 4.0, 3.0
    k = np.array([2.0, 10.0, 60.0, 0.0])
    counts = np.tile(k, (20_000, 1))
    keys = stream_keys(0, rows=1)[0] + np.arange(20_000, dtype=np.uint64)
    drawn = draw_clipped(counts, mean * counts, shape, rho, alpha, keys)
    assert (drawn[:, 3] == 0).all()
    p = np.array([0.02, 0.2, 0.5, 0.8, 0.98])
    for i, count in enumerate(k[:3]):
        sd = mean / math.sqrt(shape)
        level = max(math.log(k.sum() / (4 * count)), 0.0)
        bound = max(mean - sd * math.sqrt(alpha / count * level), 0.0)
        normal = stats.norm(mean, sd / math.sqrt(rho * count))
        assert drawn[:, i].min() >= bound - 1e-12
        error = 5 * np.sqrt(p * (1 - p) / len(drawn)) / normal.pdf(normal.ppf(p))
        expected = np.maximum(normal.ppf(p), bound)
        assert (abs(np.quantile(drawn[:, i], p) - expected) < error).all()
