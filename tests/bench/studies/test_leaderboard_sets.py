from collections.abc import Iterator
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.runner.jobs import Effort, play_jobs
from ata_gym.bench.studies.leaderboard.report import read_board
from ata_gym.bench.studies.leaderboard.scenario_set import (
    DYNAMIC_ORACLES,
    FOLLOWERS,
    ScenarioSet,
    usual_policies,
)
from ata_gym.bench.studies.leaderboard.sets import (
    CHANGING,
    CLUSTER,
    DRAWN,
    SETS,
    STEADY,
    UNSEEN,
)
from ata_gym.bench.studies.leaderboard.study import Leaderboard
from ata_gym.changes import (
    Change,
    ColdAfterIdle,
    Congestion,
    Jump,
    Leak,
    Load,
    OnOff,
    Periodic,
    Redraw,
    ShareTime,
    Throttling,
    Warming,
)
from ata_gym.scenarios.for_agents import SPLITS
from ata_policies.facts import granted
from ata_policies.registry import DEFAULTS
from ata_policies.steps import decide, play

FINGERPRINTS = {
    ("steady", "2"): "f0a65dff6f4201eff7cef2ff1a61cff5edb91900133d1a1b44d091e3b5983f84",
    ("changing", "2"): "5b52fe03d797ac7bb095b1a819dc57039c35a5156ffa5979f944f14e638fbc5f",
    ("unseen", "3"): "9a3b30426a59f7628cb3c2ba206114b1421eab920286368441b1944ffd656b2f",
    ("cluster", "1"): "f884e45384a31fb9b0e7689d14108979472ec03d557f6ac9437bea2bab054e98",
    ("cluster", "2"): "b3ba4b047ddf243c40eafde6eb8ae4ef64fb89c9a377cf5a24735ae3136b1625",
    ("drawn", "3"): "a1d4903238c29271e7f12fc34092cc077a6b4c316adb7f7fe9b775fdc52378b0",
}
"""What each version stands for: a change of a set needs a new version, and a new line here."""


CLUSTER_WORLDS = [*CLUSTER.built]


def own_changes(name: str) -> list[Change]:
    """The changes of a scenario of the cluster set, also in the lists of its episodes."""
    lists = [
        part
        for change in CLUSTER.find(name).changes
        for part in (change.among if isinstance(change, Redraw) else ((change,),))
    ]
    return [change for part in lists for change in part]


def granted_to(policy: str) -> frozenset[str]:
    """What a policy is told of the workers."""
    return granted(ata_policies.load(policy).knows)


def named(beginning: str) -> list[str]:
    """The scenarios of the cluster set that have these changes."""
    names = [name for name in CLUSTER_WORLDS if name.startswith(beginning)]
    assert names
    return names


@pytest.mark.parametrize("chosen", SETS.values(), ids=[*SETS])
def test_nobody_changes_a_set_without_a_new_version(chosen: ScenarioSet) -> None:
    assert chosen.fingerprint() == FINGERPRINTS[chosen.name, chosen.version]
    assert chosen.front in chosen.names()
    with pytest.raises(ValueError, match="no scenario of the leaderboard 'nowhere'"):
        chosen.find("nowhere")


@pytest.mark.parametrize(
    ("of", "name"),
    [(one.name, name) for one in SETS.values() for name in one.built],
)
def test_every_scenario_has_its_name_and_can_be_played(of: str, name: str) -> None:
    found = SETS[of].find(name)
    assert found.name == name
    assert found.summary
    for policy in ("ata", "dynamic-ofta", "gta"):
        env = gym.make_vec(
            ata_policies.load(policy).env_id,
            num_envs=1,
            scenario=replace(found, horizon=2),
        )
        observation, _ = env.reset(seed=0)
        action, _ = decide(ata_policies.make(policy, env), env, observation)
        assert env.step(action)[4]["runtime"] > 0


@pytest.mark.parametrize("chosen", SETS.values(), ids=[*SETS])
def test_who_plays_is_named_once_and_can_be_loaded(chosen: ScenarioSet) -> None:
    names = [*chosen.policies()]
    assert len(set(names)) == len(names)
    assert {*DEFAULTS.values(), *FOLLOWERS, "uta", "gta", "dispatch-gta"} <= set(names)
    assert all(ata_policies.load(name) for name in (*names, chosen.reference))
    shown = {*DEFAULTS.values(), *FOLLOWERS}
    nonstationary = {name for name in ata_policies.names() if ata_policies.load(name).nonstationary}
    assert set(ata_policies.names()) - set(usual_policies()) == nonstationary - shown


def test_all_races_and_dispatch_play_where_workers_change() -> None:
    learned = {name for name in ata_policies.names() if ata_policies.load(name).knows == "nothing"}
    others = {
        name for name in learned if ata_policies.load(name).env_id != "ata_gym/TaskAllocation-v0"
    }
    for one in (CHANGING, UNSEEN, DRAWN, CLUSTER):
        assert {*others, *DYNAMIC_ORACLES} <= set(one.policies())
        assert not {"ofta", "oracle", "race-oracle", "dispatch-oracle"} & set(one.policies())


def descendants(kind: type[Change]) -> Iterator[type[Change]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


def test_workers_change_in_one_set_and_stay_in_another() -> None:
    assert all(STEADY.find(name).stationary for name in STEADY.built)
    assert not any(CHANGING.find(name).stationary for name in CHANGING.built)
    # a kind with kinds under it is what they have in common: nobody plays it
    kinds = {kind for kind in descendants(Change) if not kind.__subclasses__()}
    played = {type(change) for name in CHANGING.built for change in CHANGING.find(name).changes}
    followed = {type(change) for name in CLUSTER_WORLDS for change in own_changes(name)}
    # races have no allocation that it could read
    assert played | followed | {Redraw, ShareTime} == kinds


def test_the_unseen_set_holds_what_a_default_must_survive() -> None:
    racks, back, fast, drawn = (
        UNSEEN.find(one) for one in ("racks", "fail-and-return", "eight-fast", "drawn-on-off")
    )
    assert [change.rack for change in racks.changes if isinstance(change, OnOff)] == [6]
    ((jump,), means) = back.changes, back.pool.mean()
    assert isinstance(jump, Jump)
    assert jump.until is not None
    assert jump.until < (back.horizon or 0)
    assert set(jump.workers) <= set(np.argsort(means)[:5].tolist())
    assert (fast.pool.mean() == fast.pool.mean().min()).sum() == 8
    assert drawn.pool_distribution is not None
    assert [type(change) for change in drawn.changes] == [Redraw, OnOff]


def test_drawn_workers_are_those_of_seeds_that_no_policy_was_trained_on(tmp_path) -> None:
    found = DRAWN.find("drawn-6-v1")
    board = Leaderboard({"dynamic-ofta": None}, DRAWN, [found], (0.0,), 3)
    jobs = board.begin(tmp_path, [])
    assert play_jobs(jobs, effort=Effort(jobs=1)) == {}
    ends = read_board(tmp_path).finals
    assert (ends["seed"].to_list(), ends["runtime"].n_unique()) == ([*SPLITS["test"][:3]], 3)
    assert set(SPLITS["test"]).isdisjoint(
        [*SPLITS["train"][:2], SPLITS["train"][-1], *SPLITS["validation"][-2:]],
    )


def test_the_cluster_set_has_every_kind_of_worker_that_clusters_have() -> None:
    together = [(name, change) for name in named("together") for change in own_changes(name)]
    assert {OnOff, Periodic} <= {type(change) for _, change in together}
    for name, change in together:
        if isinstance(change, OnOff):
            assert change.rack == CLUSTER.find(name).pool.n
        if isinstance(change, Periodic):
            assert change.apart == 0
    warming = [change for name in named("warming") for change in own_changes(name)]
    assert all(isinstance(change, Warming) for change in warming)
    assert {change.smooth for change in warming if isinstance(change, Warming)} == {False, True}
    fast = [change for name in named("fast") for change in own_changes(name)]
    assert {type(change) for change in fast} == {Periodic, OnOff, Load}
    assert all(30 <= change.period <= 90 for change in fast if isinstance(change, Periodic))
    assert all(1 / change.ends == 10 for change in fast if isinstance(change, OnOff))
    for name in named("variable"):
        assert own_changes(name) == []
    loaded = {
        type(change)
        for name in ("throttling", "leak", "cold-after-idle")
        for change in own_changes(name)
    }
    assert loaded == {Throttling, Leak, ColdAfterIdle}
    assert not any(CLUSTER.find(name).needs_allocation for name in CLUSTER_WORLDS)


def test_workers_budgets_and_rounds_of_the_cluster_set_are_those_of_small_clusters() -> None:
    for name in CLUSTER_WORLDS:
        found = CLUSTER.find(name)
        assert 8 <= found.pool.n <= 50
        assert found.pool.n / 2 <= found.budget <= 4 * found.pool.n
        assert 300 <= (found.horizon or 0) <= 600


def test_workers_of_the_cluster_set_pay_latencies_alike_and_apart() -> None:
    pools = {name: CLUSTER.find(name).pool for name in CLUSTER_WORLDS}
    latencies = {name: pool.latency for name, pool in pools.items() if pool.latency is not None}
    assert [*latencies] == named("latency")
    medians = {name: latency.median() for name, latency in latencies.items()}
    assert all(set(latency.families) == {"log-normal"} for latency in latencies.values())
    assert {len(set(median)) == 1 for median in medians.values()} == {False, True}
    every = np.concatenate([*medians.values()])
    np.testing.assert_allclose([every.min(), every.max()], [1, 20])
    shared = {
        change.rack == pools[name].n
        for name in latencies
        for change in own_changes(name)
        if isinstance(change, Congestion)
    }
    assert shared == {True}
    # a fastest worker has a mean of about 1
    for name in latencies:
        rows = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=64, scenario=CLUSTER.find(name))
        rows.reset(seed=0)
        assert 0.7 <= np.median(rows.unwrapped.means().min(axis=1)) <= 1.4


def test_very_variable_workers_have_the_shapes_that_their_summaries_say() -> None:
    shapes = {name: CLUSTER.find(name).catalogue.distributions.shape for name in named("variable")}
    np.testing.assert_allclose(shapes["variable-log-normal"], 2.0)
    np.testing.assert_allclose(shapes["variable-weibull"], 0.3)
    gamma = shapes["variable-gamma"]
    np.testing.assert_allclose([gamma.min(), gamma.max()], [0.1, 0.3])


@pytest.mark.parametrize("name", CLUSTER_WORLDS)
def test_each_seed_of_the_cluster_set_has_other_workers_and_always_the_same(name: str) -> None:
    def drawn() -> np.ndarray:
        envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=8, scenario=CLUSTER.find(name))
        envs.reset(seed=CLUSTER.first_seed)
        means: np.ndarray = envs.unwrapped.means()
        return means

    means = drawn()
    assert len(np.unique(means, axis=0)) == 8
    np.testing.assert_array_equal(means, drawn())
    assert CLUSTER.first_seed in SPLITS["test"]
    if CLUSTER.find(name).pool.latency is not None:
        # these speeds stay for the whole episode
        envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=8, scenario=CLUSTER.find(name))
        envs.reset(seed=CLUSTER.first_seed)
        shares = np.tile(np.bincount(np.arange(envs.unwrapped.budget) % means.shape[1]), (8, 1))
        for _ in range(50):
            envs.step(shares)
        np.testing.assert_allclose(envs.unwrapped.means(), means, rtol=1e-4)


@pytest.mark.parametrize("name", CLUSTER_WORLDS)
def test_all_usual_policies_can_play_the_cluster_set(name: str) -> None:
    found = replace(CLUSTER.find(name), horizon=2)
    # those who must know the workers are for workers that nobody draws anew
    learners = {
        policy
        for policy in (*usual_policies(), *CLUSTER.policies())
        if "pool" not in granted_to(policy)
    }
    assert learners > {*DEFAULTS.values(), *FOLLOWERS}
    for policy in learners:
        env = gym.make(ata_policies.load(policy).env_id, scenario=found)
        steps = [*play(ata_policies.make(policy, env), env, CLUSTER.first_seed)]
        assert sum(step.round_over for step in steps) == 2
        assert all(np.isfinite(step.reward) for step in steps)
