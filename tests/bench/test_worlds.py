"""The set of worlds stays what its version says."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import pytest

import ata_policies
from ata_gym.bench import worlds

FINGERPRINTS = {
    "1": "7174e5b0b20b73a81402aa974b7e65edfd8336710c0343cabc515f09fa6e8d2b",
}
"""What each version stands for: a change of the set needs a new version, and a new line here."""


def test_nobody_changes_the_set_without_a_new_version():
    assert worlds.fingerprint() == FINGERPRINTS[worlds.VERSION]


@pytest.mark.parametrize("name", [name for name in worlds.world_names() if name not in worlds.RECORDINGS])
def test_every_world_has_its_name_and_can_be_played_by_the_published_policies(name):
    world = worlds.world(name)
    assert world.name == name
    assert world.summary
    for policy in ("ata", "ata-empirical-icml", "ofta", "gta"):
        env = gym.make(ata_policies.load(policy).env_id, scenario=replace(world, horizon=2))
        observation, _ = env.reset(seed=0)
        action, _ = ata_policies.make(policy, env).predict(observation)
        assert env.step(action)[4]["runtime"] > 0


def test_a_quick_look_is_a_part_of_the_whole():
    assert set(worlds.QUICK) <= set(worlds.world_names())
    assert all(rounds < worlds.world(name).horizon for name, rounds in worlds.QUICK.items())
    assert set(worlds.QUICK_PRICES) <= set(worlds.PRICES)


def test_worlds_and_prices_are_as_announced():
    assert worlds.PRICES == (0.0, 0.01, 0.1, 1.0)
    built = [worlds.world(name) for name in worlds.world_names() if name not in worlds.RECORDINGS]
    assert max(world.pool.n for world in built) == 300
    assert min(world.horizon for world in built) == 300
    near_equal = worlds.world("near-equal").pool
    assert near_equal.sd() / near_equal.mean() == pytest.approx(0.05)
    for heavy in ("log-normal", "pareto"):
        pool = worlds.world(heavy).pool
        assert pool.mean()[[0, -1]] == pytest.approx([10.0, 200.0])
        assert (pool.sd() > 2 * pool.mean()).all()


@pytest.mark.parametrize("name", worlds.RECORDINGS)
def test_recorded_worlds_are_read_from_their_files(name, shared_data):
    world = worlds.world(name, shared_data)
    assert world.name == name
    assert world.budget == worlds.RECORDINGS[name].budget


def test_a_recorded_world_needs_its_folder():
    with pytest.raises(ValueError, match=r"alibaba_job_1.csv: give the folder"):
        worlds.world("alibaba-1")


def test_an_unknown_world_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="there is no world 'paretto'; did you mean pareto"):
        worlds.world("paretto")
