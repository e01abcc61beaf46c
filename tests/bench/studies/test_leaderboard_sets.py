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
from ata_gym.bench.studies.leaderboard.sets import CHANGING, DRAWN, SETS, STEADY, UNSEEN
from ata_gym.bench.studies.leaderboard.study import Leaderboard
from ata_gym.changes import Change, Jump, OnOff, Redraw
from ata_gym.scenarios.for_agents import SPLITS
from ata_policies.registry import DEFAULTS
from ata_policies.steps import decide

FINGERPRINTS = {
    ("steady", "2"): "f0a65dff6f4201eff7cef2ff1a61cff5edb91900133d1a1b44d091e3b5983f84",
    ("changing", "2"): "5b52fe03d797ac7bb095b1a819dc57039c35a5156ffa5979f944f14e638fbc5f",
    ("unseen", "3"): "9a3b30426a59f7628cb3c2ba206114b1421eab920286368441b1944ffd656b2f",
    ("drawn", "3"): "a1d4903238c29271e7f12fc34092cc077a6b4c316adb7f7fe9b775fdc52378b0",
}
"""What each version stands for: a change of a set needs a new version, and a new line here."""


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
    for one in (CHANGING, UNSEEN, DRAWN):
        assert {*others, *DYNAMIC_ORACLES} <= set(one.policies())
        assert not {"ofta", "oracle", "race-oracle", "dispatch-oracle"} & set(one.policies())


def test_workers_change_in_one_set_and_stay_in_another() -> None:
    assert all(STEADY.find(name).stationary for name in STEADY.built)
    assert not any(CHANGING.find(name).stationary for name in CHANGING.built)
    # what others have in common
    shared = {kind for kind in Change.__subclasses__() if kind.__subclasses__()}
    kinds = {
        *Change.__subclasses__(),
        *(leaf for kind in shared for leaf in kind.__subclasses__()),
    } - shared
    played = {type(change) for name in CHANGING.built for change in CHANGING.find(name).changes}
    assert played | {Redraw} == kinds


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
