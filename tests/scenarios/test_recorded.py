"""Scenarios that are made of recorded speeds."""

import pickle
import shutil
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import scenario_names
from ata_gym.bench.studies.leaderboard.sets import SETS
from ata_gym.changes import Jump
from ata_gym.scenarios.recorded import RECORDINGS, find_scenario


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_scenario_is_read_and_played(name, shared_data):
    result = find_scenario(name, shared_data)
    recording = RECORDINGS[name]
    assert (result.name, result.budget, result.horizon) == (
        name,
        recording.budget,
        recording.rounds,
    )
    assert result.summary
    assert (result.changes, pickle.loads(pickle.dumps(result))) == (recording.changes, result)
    env: Any = gym.make("ata_gym/TaskAllocation-v0", scenario=result)
    observation, _ = env.reset(seed=0)
    action, _ = ata_policies.make("ata-icml", env).predict(observation)
    assert env.step(action)[4]["runtime"] > 0


def test_the_jump_is_on_top_of_what_was_recorded(shared_data):
    plain, jumping = (find_scenario(name, shared_data) for name in ("alibaba-4", "alibaba-4-jump"))
    assert (jumping.pool, jumping.changes) == (
        plain.pool,
        (Jump(at=1_000, workers=(4,), factor=4.0),),
    )
    assert 4 in np.argsort(plain.pool.mean())[:5]  # in use before
    assert set(plain.pool.families) == {"trace-by-round"}


def test_phones_are_of_many_speeds(shared_data):
    pool = find_scenario("phones", shared_data).pool
    assert pool.n == len(np.unique(pool.mean())) == 60
    assert pool.mean().max() / pool.mean().min() == pytest.approx(41.05, abs=0.01)
    np.testing.assert_allclose(pool.sd() / pool.mean(), 0.2)


def test_another_recording_under_the_same_name_is_refused(tmp_path, shared_data):
    other, this = (RECORDINGS[name] for name in ("alibaba-1", "alibaba-4"))
    shutil.copy(shared_data / other.file, tmp_path / this.file)
    with pytest.raises(
        ValueError,
        match=r"alibaba_job_4.csv does not hold the times from which .* alibaba-4 is made",
    ):
        find_scenario("alibaba-4", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "5",
        "[5]",
        "[{}]",
        '[{"CPU_F_AI_Score": "fast"}]',
        '[{"CPU_F_AI_Score": null}]',
        "[" * 100_000,
        "{",
        '[{"CPU_F_AI_Score": 1e999}]',
        '[{"CPU_F_AI_Score": 0}]',
        '[{"CPU_F_AI_Score": 7}]',
    ],
)
def test_a_file_that_holds_no_phones_is_refused_by_name(tmp_path, content):
    file = tmp_path / RECORDINGS["phones"].file
    file.write_text(content)
    with pytest.raises(ValueError, match=f"{file} (is no list of phones|does not hold the times)"):
        find_scenario("phones", tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"no file .*alibaba_job_1.csv, of which .* alibaba-1 is made",
    ):
        find_scenario("alibaba-1", tmp_path)
    with pytest.raises(
        ValueError,
        match=r"made of mlperf_v07_resnet50_speed.csv.gz: give the folder .*--data",
    ):
        find_scenario("mlperf")
    with pytest.raises(ValueError, match="did you mean alibaba-4"):
        find_scenario("alibabba-4")
    with pytest.raises(ValueError, match="icml2025-regret needs no data; these do: alibaba-1"):
        find_scenario("icml2025-regret", tmp_path)


def test_names_do_not_meet_and_the_leaderboard_takes_some_of_them():
    assert not set(RECORDINGS) & set(scenario_names())
    assert {name for one in SETS.values() for name in one.recorded} <= set(RECORDINGS)
    assert not any(RECORDINGS[name].changes for name in SETS["steady"].recorded)
