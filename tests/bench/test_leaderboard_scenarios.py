"""The set of scenarios stays what its version says."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import pytest

import ata_policies
from ata_gym.bench.leaderboard import scenarios

FINGERPRINTS = {
    "1": "7174e5b0b20b73a81402aa974b7e65edfd8336710c0343cabc515f09fa6e8d2b",
}
"""What each version stands for: a change of the set needs a new version, and a new line here."""


def test_nobody_changes_the_set_without_a_new_version():
    assert scenarios.fingerprint() == FINGERPRINTS[scenarios.VERSION]


@pytest.mark.parametrize("name", [name for name in scenarios.names() if name not in scenarios.RECORDINGS])
def test_every_scenario_has_its_name_and_can_be_played_by_the_published_policies(name):
    found = scenarios.find(name)
    assert found.name == name
    assert found.summary
    for policy in ("ata", "ata-empirical-icml", "ofta", "gta"):
        env = gym.make(ata_policies.load(policy).env_id, scenario=replace(found, horizon=2))
        observation, _ = env.reset(seed=0)
        action, _ = ata_policies.make(policy, env).predict(observation)
        assert env.step(action)[4]["runtime"] > 0


def test_a_quick_look_is_a_part_of_the_whole():
    assert set(scenarios.QUICK) <= set(scenarios.names())
    assert all(rounds < scenarios.find(name).horizon for name, rounds in scenarios.QUICK.items())
    assert set(scenarios.QUICK_PRICES) <= set(scenarios.PRICES)


def test_scenarios_and_prices_are_as_announced():
    assert scenarios.PRICES == (0.0, 0.01, 0.1, 1.0)
    built = [scenarios.find(name) for name in scenarios.names() if name not in scenarios.RECORDINGS]
    assert max(found.pool.n for found in built) == 300
    assert min(found.horizon for found in built) == 300
    near_equal = scenarios.find("near-equal").pool
    assert near_equal.sd() / near_equal.mean() == pytest.approx(0.05)
    for heavy in ("log-normal", "pareto"):
        pool = scenarios.find(heavy).pool
        assert pool.mean()[[0, -1]] == pytest.approx([10.0, 200.0])
        assert (pool.sd() > 2 * pool.mean()).all()


@pytest.mark.parametrize("name", scenarios.RECORDINGS)
def test_recorded_scenarios_are_read_from_their_files(name, shared_data):
    found = scenarios.find(name, shared_data)
    assert found.name == name
    assert found.budget == scenarios.RECORDINGS[name].budget


def test_a_recorded_scenario_needs_its_folder():
    with pytest.raises(ValueError, match=r"alibaba_job_1.csv: give the folder"):
        scenarios.find("alibaba-1")
