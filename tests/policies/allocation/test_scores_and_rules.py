"""Policies of scores and rules: every composition, what the plain ones allocate, what is learned,
what is refused.
"""

import itertools
import math
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ata_policies
from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.changes import Spot
from ata_gym.pools import Pool, exponential, shifted_exponential
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_policies import Setting, Totals
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy, names_of
from ata_policies.allocation.exponentiated_gradient import Penalties, round_randomly
from ata_policies.allocation.information_directed import (
    expected_regrets,
    information,
    least_ratio,
)


def shifted(n: int) -> Pool:
    return shifted_exponential(np.arange(1.0, n + 1), np.arange(1.0, n + 1))


POOL = shifted(8)
BUDGET = 7
SCENARIO: dict[str, Any] = {"pool": POOL, "budget": BUDGET}


@pytest.mark.parametrize(
    ("names", "pool", "rounds", "late"),
    [
        (
            ("certainty-equivalence", "epsilon-uniform", "explore-then-commit"),
            shifted(8),
            400,
            1.35,
        ),
        (("cucb", "ucb-v", "kl-lcb", "kl-gamma", "mots"), shifted(8), 700, 1.1),
        (
            ("thompson", "thompson-gamma", "v-ids"),
            exponential(np.arange(1.0, 11.0)),
            800,
            1.05,
        ),
        (("ata-icml", "ata-empirical-icml"), shifted(5), 2500, 1.1),
        (("median-of-means", "catoni", "truncated-mean"), shifted(6), 1000, 1.08),
    ],
)
def test_learns(play: Any, names: tuple[str, ...], pool: Pool, rounds: int, late: float) -> None:
    """The proxy loss is far from the least in the first rounds, and near it in the last quarter."""
    least = proxy_loss(proxy_optimal(pool, BUDGET), pool.mean())
    for name in names:
        losses = (
            proxy_loss(play(name, rounds, pool=pool, budget=BUDGET).actions, pool.mean()) / least
        )
        assert losses[:2].mean() > 1.5, name
        assert losses[-rounds // 4 :].mean() < late, name


ABOVE_0 = " must be a finite number above 0"
ORACLES = "ofta oracle dynamic-ofta dynamic-oracle race-oracle dispatch-oracle dispatch-caps"


@pytest.mark.parametrize(
    ("names", "hyperparameter", "wrong", "message"),
    [
        ("epsilon-uniform", "c", (0.0,), "c" + ABOVE_0),
        ("explore-then-commit", "tasks", (0, 2.0), "tasks must be a whole number from 1"),
        ("cucb ucb-v", "scale", (0.0, -1.0), "scale" + ABOVE_0),
        (
            "kl-lcb thompson mots v-ids race-backup",
            "shape",
            (0.0, -1.0, math.inf, math.nan, "4"),
            "shape" + ABOVE_0,
        ),
        (
            "kl-gamma thompson-gamma thompson-beta distribution-learner",
            "weight",
            (0, 0.0),
            "weight" + ABOVE_0,
        ),
        ("thompson-beta", "beta", (-1.0, math.inf), "beta must be a finite number"),
        ("median-of-means", "blocks", (0, 1, 3, 128, 2.0), "blocks must be"),
        ("catoni", "moment", (0.0, math.inf), "moment must be"),
        ("truncated-mean", "radius", (-1.0, math.nan), "radius must be"),
        ("mots", "rho", (0.0, math.nan), "rho" + ABOVE_0),
        ("mots", "alpha", (0.0, math.inf), "alpha" + ABOVE_0),
        ("v-ids", "draws", (1, 2.5), "draws must be a whole number from 2"),
        ("exponentiated-gradient", "rate", (-0.5,), "rate" + ABOVE_0),
        ("ata", "version", ("poster",), "version must be 'preprint' or 'icml', not 'poster'"),
        ("thompson:memory=window", "blocks", (7,), "blocks must divide the window of 300"),
        ("thompson:memory=window", "unit", ("years",), 'unit must be "tasks"'),
        ("thompson:memory=window", "window", (0,), "window must be"),
        ("thompson:memory=discount", "discount", (1.0,), "discount must be below 1"),
        ("thompson:memory=discount", "discount", (0.0,), "discount" + ABOVE_0),
        (
            "restarting-beta",
            "detector",
            ("ear",),
            "detector must be 'page-hinkley' or 'cusum' or 'glr', not 'ear'",
        ),
        (
            "restarting-beta",
            "restart",
            ("none",),
            "restart must be 'all' or 'many' or 'worker'",
        ),
        (
            "restarting-beta",
            "effective_tasks",
            (39.9, math.inf),
            "effective_tasks must be a finite number of at least",
        ),
        ("restarting-beta", "refresh", (0.0,), "refresh" + ABOVE_0),
        ("restarting-beta", "threshold", (-1.0,), "threshold" + ABOVE_0),
        ("thompson:memory=prior", "prior_weight", (-0.1, 1.1, math.nan), "weight must be"),
        (ORACLES, "seed", (0,), "needs an env whose pool is known"),
        ("race-fastest race-caps dispatch-rest", "m", (0, 1.5), "m must be a whole number"),
        ("race-fastest race-caps", "m", (4,), "m must be at most the number of workers, 3, not 4"),
        ("race-caps race-backup", "d", (-1,), "d must be"),
        ("race", "tolerance", (-0.1,), "tolerance must be a finite number of at least 0, not -0.1"),
        ("race", "explore", (math.inf,), "explore must be"),
        ("dispatch-rest", "kappa", (-1.0, math.nan), "kappa must be"),
    ],
)
def test_wrong_hyperparameters(
    refuses: Any,
    names: str,
    hyperparameter: str,
    wrong: Any,
    message: str,
) -> None:
    for full, value in itertools.product(names.split(), wrong):
        name, _, memory = full.partition(":memory=")
        refuses(name, message, **{hyperparameter: value}, **({"memory": memory} if memory else {}))


@settings(max_examples=10)
@given(n=st.integers(1, 12), budget=st.integers(1, 30))
def test_uta_is_even_and_ofta_optimal(n: int, budget: int) -> None:
    pool = exponential(np.arange(1.0, n + 1))
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=pool, budget=budget)
    observation, _ = env.reset(seed=0)
    uta, _ = ata_policies.make("uta", env).predict(observation)
    assert (uta.sum(axis=1) == budget).all()
    assert uta.max() - uta.min() <= 1
    ofta, _ = ata_policies.make("ofta", env).predict(observation)
    np.testing.assert_array_equal(ofta, np.tile(proxy_optimal(pool, budget), (4, 1)))


def test_uta_draws_afresh_in_each_episode() -> None:
    env = gym.make_vec(
        "ata_gym/TaskAllocation-v0",
        num_envs=2,
        pool=exponential(np.ones(5)),
        budget=7,
        horizon=3,
    )
    policy = ata_policies.make("uta", env)
    state = None
    starts = []
    for _ in range(5):
        action, state = policy.predict(env.reset()[0], state)
        starts.append(action.tolist())
    assert len({str(start) for start in starts}) > 1


def test_the_beta_rule_settles_on_that_of_the_true_distributions(play: Any) -> None:
    pool = shifted(12)
    usual = play("thompson-beta", 2000, 2, pool=pool, budget=15).actions[1500:].mean(axis=(0, 1))
    np.testing.assert_allclose(usual, allocate_by_cost(pool.mean(), 1.5 * pool.sd(), 15), atol=0.5)


def split(run: Any) -> tuple[Any, Any, Any]:
    """Allocations, and counts and totals before each; (rounds, rows, n)."""
    return run.actions, *(
        np.array([getattr(state.belief, x) for state in run.states]) for x in ("counts", "totals")
    )


def test_uniform_rounds_are_as_many_as_they_should_be_and_uniform(play: Any) -> None:
    """A share of n c / k in round k; 7 of 8 workers get one task then, and each is left out as
    often.
    """
    allocations, counts, totals = split(
        play("epsilon-uniform", 800, 16, hyperparameters={"c": 2.0}, **SCENARIO),
    )
    means = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0)
    uniform = (allocations != allocate(means, BUDGET)).any(axis=2)
    assert uniform[3:16].all()  # c n = 16
    for first, last in ((30, 100), (100, 300), (300, 800)):
        expected = (16 / np.arange(first + 1, last + 1)).mean()
        assert (
            abs(uniform[first:last].mean() - expected)
            < 4 * (expected / (16 * (last - first))) ** 0.5
        )
    left_out = (allocations[3:][uniform[3:]] == 0).mean(axis=0)
    assert (allocations[3:][uniform[3:]].max(axis=1) == 1).all()
    assert abs(left_out - 1 / 8).max() < 4 * (1 / 8 / uniform[3:].sum()) ** 0.5


@settings(max_examples=10)
@given(n=st.integers(1, 9), budget=st.integers(1, 30), tasks=st.integers(1, 6))
def test_everybody_is_tried_for_the_same_number_of_tasks(
    play: Any,
    n: int,
    budget: int,
    tasks: int,
) -> None:
    rounds = -(-n * tasks // budget)
    pool = exponential(np.arange(1.0, n + 1))
    run = play(
        "explore-then-commit",
        rounds + 4,
        2,
        pool=pool,
        budget=budget,
        hyperparameters={"tasks": tasks},
    )
    allocations, counts, totals = split(run)
    tried = allocations[:rounds].sum(axis=0)
    assert tried.min() >= tasks
    assert tried.max() - tried.min() <= 1
    for e in range(2):
        best = allocate(totals[rounds, e] / counts[rounds, e], budget)
        np.testing.assert_array_equal(allocations[rounds:, e], np.tile(best, (4, 1)))


@settings(max_examples=25)
@given(
    penalties=st.lists(st.floats(0, 1e6), min_size=1, max_size=9),
    rate=st.floats(0, 1e3),
    budget=st.integers(1, 99),
)
def test_rounding_is_to_the_next_whole_numbers_and_right_on_average(
    penalties,
    rate,
    budget,
) -> None:
    p = np.exp(-rate * (np.array(penalties) - min(penalties)))
    share = p / p.sum() * budget
    draws = (np.arange(1000) + 0.5) / 1000
    a = round_randomly(np.tile(penalties, (1000, 1)), np.full(1000, rate), budget, draws)
    assert (a.sum(axis=1) == budget).all()
    assert (abs(a - share) < 1 + 1e-9).all()
    np.testing.assert_allclose(a.mean(axis=0), share, atol=2e-3)


def test_only_the_slowest_is_penalised_by_its_time_per_task() -> None:
    worker = np.array([[0, 1, 1], [0, 1, 2], [-1, -1, -1]])
    time = np.array([[6.0, 3.0, 4.0], [5.0, 2.0, 5.0], [0.0, 0.0, 0.0]])
    belief = Penalties.empty(3, 3).observe(worker, time)
    np.testing.assert_array_equal(belief.penalties, [[0, 3.5, 0], [5, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(belief.counts, [[1, 2, 0], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(belief.observe(worker, time).penalties, 2 * belief.penalties)


def test_weights_follow_the_multiplicative_rule(play: Any) -> None:
    """Along a run, the softmax of the penalties is what multiplying and normalising round by round
    gives.
    """
    rate = 0.05
    p = np.full(8, 1 / 8)
    run = play("exponentiated-gradient", 100, 1, hyperparameters={"rate": rate}, **SCENARIO)
    for k, (allocation, state) in enumerate(zip(run.actions[:, 0], run.states, strict=True)):
        softmax = np.exp(-rate * state.belief.penalties[0])
        np.testing.assert_allclose(p, softmax / softmax.sum(), rtol=1e-10)
        assert (abs(allocation - p * BUDGET) < 1).all()
        if k < 99:
            seen = run.observations[k + 1]
            busy = np.zeros(8)
            np.add.at(busy, seen["worker"][0], seen["duration"][0])
            slowest = busy.argmax()
            p[slowest] *= np.exp(-rate * busy[slowest] / allocation[slowest])
            p /= p.sum()
    times = play("exponentiated-gradient", 1000, 4, **SCENARIO).round_times
    assert times[-300:].mean() < 0.7 * times[:10].mean()


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), draws=st.integers(2, 6), budget=st.integers(1, 5))
def test_the_information_ratio_is_the_least_over_all_pairs(
    seed: int,
    draws: int,
    budget: int,
) -> None:
    """By conditional means over the groups of draws, and a fine grid of probabilities."""
    means = np.random.default_rng(seed).gamma(2.0, size=(draws, 3))
    actions = np.array([allocate(s, budget) for s in means])
    regret = [np.mean((means * a).max(1) - (means * actions).max(1)) for a in actions]
    np.testing.assert_allclose(expected_regrets(means, actions), regret, atol=1e-12)
    known = np.zeros((draws, 3))
    for i in range(3):
        for tasks in actions[:, i]:
            group = actions[:, i] == tasks
            known[group, i] = means[group, i].mean()
    told = (actions * known.var(axis=0) / means.mean(axis=0) ** 2).sum(axis=1)
    np.testing.assert_allclose(information(means, actions), told, atol=1e-12)
    if not np.all(told > 1e-9) or min(regret) < 1e-9:
        return
    q = np.linspace(0, 1, 2001)
    pairs = list(itertools.product(range(draws), repeat=2))
    ratios = [
        (q * regret[a] + (1 - q) * regret[b]) ** 2 / (q * told[a] + (1 - q) * told[b])
        for a, b in pairs
    ]
    least = np.min(ratios)
    uniform = (np.arange(20_000) + 0.5) / 20_000
    chosen = least_ratio(np.array(regret), told, uniform)
    share = np.bincount(chosen, minlength=draws) / len(uniform)
    assert np.count_nonzero(share) <= 2
    assert (share @ regret) ** 2 / (share @ told) == pytest.approx(least, rel=1e-3)


def test_an_action_without_regret_is_chosen() -> None:
    assert least_ratio(np.array([1.0, 0.0, 2.0]), np.array([5.0, 0.0, 9.0]), 0.3) == 1


MEANS = np.arange(1.0, 6.0)


def changing_scenario(unit: float = 1.0) -> dict[str, Any]:
    pool = shifted_exponential(unit * MEANS, unit * MEANS)
    return {
        "pool": pool,
        "budget": 7,
        "changes": [Spot(leaves=0.05, returns=0.3, deadline=unit * 30.0)],
    }


CHANGING = changing_scenario()
ALL = list(itertools.product(MEMORIES, ESTIMATES, RULES))

OWN = {
    "median-of-means": "sums in blocks",
    "catoni": "sums in blocks",
    "truncated-mean": "clipped totals",
}
DEVIATIONS = {"ucb-v", "kl-gamma", "thompson-gamma"}  # needed by these
SHAPE = {"thompson", "thompson-gamma", "mots", "kl-lcb", "kl-gamma"}  # known by these


def refusal(memory: str, estimate: str, rule: str) -> str | None:
    if estimate in OWN and memory != "everything":
        return (
            f"{estimate} keeps {OWN[estimate]}, which the memory {memory} cannot give: use"
            ' memory="everything"'
        )
    if estimate in OWN and rule == "beta":
        return (
            f"the rule beta needs the spread of the task times, which {estimate} does not estimate"
        )
    if memory == "prior" and (estimate in DEVIATIONS or (rule == "beta" and estimate not in SHAPE)):
        return (
            "a prior holds counts and means, and this estimate needs deviations: use another memory"
        )
    return None


def made(
    memory: str,
    estimate: str,
    rule: str,
    pool: Any = CHANGING["pool"],
    **hyperparameters: Any,
) -> ComposedPolicy:
    setting = Setting(n=5, budget=7, pool=pool)
    return ComposedPolicy(setting, memory=memory, estimate=estimate, rule=rule, **hyperparameters)


PAIRWISE = [
    (memory, estimate, list(RULES)[(i + j) % len(RULES)])
    for (i, memory), (j, estimate) in itertools.product(enumerate(MEMORIES), enumerate(ESTIMATES))
]
"""Every two parts that there are together."""


@pytest.mark.parametrize(
    "parts",
    [parts for parts in PAIRWISE if refusal(*parts) is None],
    ids="-".join,
)
def test_a_combination_plays(play: Any, parts: tuple[str, str, str]) -> None:
    """20 legal rounds, of which a row is what it is alone; the unit of time does not matter."""

    def built(unit: float = 1.0, seed: int = 0) -> ComposedPolicy:
        prior = Totals(np.full((1, 5), 2.0), np.full((1, 5), 2.0 * unit))
        more: dict[str, Any] = {"prior": {"prior": prior}, "window": {"window": 12}}
        return made(*parts, changing_scenario(unit)["pool"], seed=seed, **more.get(parts[0], {}))

    run = play(built(), 20, 3, **CHANGING)
    unit = 2.0**40
    np.testing.assert_array_equal(
        play(built(unit), 20, 3, **changing_scenario(unit)).actions, run.actions
    )
    policy = built(seed=2)
    state = None
    for expected, observation in zip(run.actions[:, 2], run.observations, strict=True):
        action, state = policy.predict(
            {name: field[2] for name, field in observation.items()},
            state,
        )
        np.testing.assert_array_equal(action, expected)


def test_parts_that_do_not_fit_are_refused_and_others_have_no_hyperparameter_of_the_same_name() -> (
    None
):
    for memory, estimate, rule in ALL:
        if sentence := refusal(memory, estimate, rule):
            with pytest.raises(ValueError, match=re.escape(sentence)):
                made(memory, estimate, rule)
        else:
            names = [
                n
                for kind in (ESTIMATES[estimate], MEMORIES[memory], RULES[rule])
                for n in names_of(kind)
            ]
            reserved = ["estimate", "memory", "rule", "availability", "seed", "setting"]
            assert len({*names, *reserved}) == len(names) + len(reserved)


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"memory": "windows"}, r"there is no memory 'windows'; did you mean window"),
        ({"estimate": "tompson"}, r"there is no estimate 'tompson'; did you mean thompson"),
        ({"rule": "betta"}, r"there is no rule 'betta'; did you mean beta\?"),
        ({"memory": 3}, "there is no memory '3'"),
        (
            {"memory": "window", "discount": 0.9},
            "does not take discount; its hyperparameters are: shape, window, unit",
        ),
        (
            {"widow": 6},
            "thompson with memory everything and rule proxy does not take widow; .* are: shape$",
        ),
        ({"estimate": "mean", "shape": 1.0}, "does not take shape; its hyperparameters are: none"),
        ({"availability": 1}, "availability must be"),
    ],
)
def test_what_is_unknown_or_wrong(hyperparameters: dict[str, Any], message: str) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=CHANGING["pool"], budget=7)
    with pytest.raises(ValueError, match=message):
        ata_policies.make("thompson", env, **hyperparameters)


@pytest.mark.parametrize(
    ("name", "preset", "parts"),
    [
        ("restarting-beta", "thompson-gamma", {"memory": "restarting", "rule": "beta"}),
        ("epsilon-uniform", "certainty-equivalence", {"rule": "epsilon-uniform"}),
        ("ata-icml", "ata", {"version": "icml"}),
        ("ata-empirical-icml", "ata-empirical", {"version": "icml"}),
        ("ata-icml:memory=window", "ata", {"version": "icml", "memory": "window"}),
        (
            "thompson:memory=restarting:availability=False",
            "thompson",
            {"memory": "restarting", "availability": False},
        ),
    ],
)
def test_a_preset_is_its_composition(
    play: Any,
    name: str,
    preset: str,
    parts: dict[str, Any],
) -> None:
    one = play(name, 40, 2, **CHANGING)
    other = play(preset, 40, 2, hyperparameters=parts, **CHANGING)
    np.testing.assert_array_equal(one.actions, other.actions)
    assert type(one.states[-1].belief) is type(other.states[-1].belief)


def test_hyperparameters_given_override_those_of_the_preset() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=CHANGING["pool"], budget=7)
    policy: Any = ata_policies.make("restarting-beta:beta=1.25", env, effective_tasks=None)
    assert (policy.rule.beta, policy.memory.effective_tasks, policy.estimate.weight) == (
        1.25,
        None,
        5.0,
    )
    for estimate in ("ata", "ata-empirical"):  # what suits them better can be overridden as well
        memory: Any = made("restarting", estimate, "proxy").memory
        assert (memory.restart, memory.effective_tasks) == ("all", None)
        memory = made("restarting", estimate, "proxy", restart="many", effective_tasks=80.0).memory
        assert (memory.restart, memory.effective_tasks) == ("many", 80.0)


def test_who_is_away_is_watched_by_default_with_the_memory_that_restarts() -> None:
    assert [name for name in MEMORIES if made(name, "thompson", "proxy").availability] == [
        "restarting",
    ]
    for flag in (True, False):
        assert made("everything", "thompson", "proxy", availability=flag).availability == flag
