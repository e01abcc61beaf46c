"""Minari records rounds with their infos, and gives the spaces and the env back.

Run by ``nox -s minari``.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym.pools import PoolDistribution
from tests.envs.playing import EVERY_FORM, arguments, name

if importlib.util.find_spec("minari") is None:
    pytest.skip("minari is not installed", allow_module_level=True)

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


@pytest.mark.parametrize("form", EVERY_FORM, ids=name)
def test_a_data_set_holds_infos_spaces_and_the_recipe_of_the_env(form: dict[str, str]) -> None:
    import minari

    env_id, options = arguments(form)
    env: Any = gym.make(env_id, pool=PoolDistribution(5, fewest=3), budget=3, horizon=2, **options)
    collector = minari.DataCollector(env, record_infos=True)
    infos = []
    for seed in range(2):
        infos.append([collector.reset(seed=seed)[1]])
        over = False
        while not over:
            *_, over, info = collector.step(collector.action_space.sample())
            infos[-1].append(info)
    collector.create_dataset("rounds/random-v0")
    dataset = minari.load_dataset("rounds/random-v0")
    assert (dataset.observation_space, dataset.action_space) == (
        env.observation_space,
        env.action_space,
    )
    again: Any = dataset.recover_environment()
    assert again.spec == env.spec
    assert again.unwrapped.scenario == env.unwrapped.scenario
    for episode, episode_infos in zip(dataset, infos, strict=True):
        assert episode.infos.keys() == episode_infos[0].keys()
        for key, values in episode.infos.items():
            assert np.array_equal(values, [info[key] for info in episode_infos])


def test_another_program_reads_it_whatever_it_imports_first() -> None:
    import minari

    env = gym.make("ata_gym/TaskRace-v0", horizon=1)
    collector = minari.DataCollector(env)
    collector.reset(seed=0)
    collector.step(collector.action_space.sample())
    collector.create_dataset("rounds/race-v0")
    for order in ("ata_gym, minari", "minari, ata_gym"):
        code = f"import {order}; print(minari.load_dataset('rounds/race-v0').action_space)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout.strip() == str(env.action_space) == "RaceAllocation(5, 8)"
