from itertools import pairwise
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import ata_gym
from ata_gym.bench.report import style
from ata_gym.bench.studies.side_by_side import pictures
from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
from ata_gym.scenarios import Scenario
from tests.bench.sketches import DRAW

FIVE = ata_gym.scenario("five-workers")


LEARNING = run_path(str(Path(__file__).parents[3] / "notebooks" / "learning.py"))


def played(policy: str, rounds: int, scenario: Scenario = FIVE, **options: int) -> WatchedPolicy:
    watched = WatchedPolicy(policy, scenario, rounds, **options)
    for _ in range(rounds):
        watched.play_round()
    return watched


@pytest.mark.parametrize("policy", ["gta", "default", "dispatch", "oracle"])
def test_a_policy_plays_whole_rounds_of_its_own_env(policy: str) -> None:
    watched = played(policy, 3)
    assert [timeline.round for timeline in watched.recent] == [1, 2, 3]
    assert all(timeline.round_over for timeline in watched.recent)
    assert watched.times == [timeline.time for timeline in watched.recent]
    for timeline, busy, wasted in zip(
        watched.recent,
        watched.worker_times,
        watched.wasted,
        strict=True,
    ):
        assert [timeline.busy.sum(), timeline.wasted_time.sum()] == pytest.approx([busy, wasted])
        assert timeline.tasks.sum() >= watched.budget


def test_policies_of_a_seed_have_the_same_task_times() -> None:
    """An even share and ATA, which begins with one, have the same first round; another seed has
    another.
    """
    first = [played(policy, 1, seed=7).times for policy in ("uta", "ata-empirical-icml")]
    assert first[0] == first[1] != played("uta", 1, seed=8).times


def test_averages_are_over_the_second_half_and_a_typical_round_is_close_to_them() -> None:
    watched = played("gta", 41)
    time, work, share = watched.averages()
    assert (watched.settled, time) == (slice(20, None), pytest.approx(np.mean(watched.times[20:])))
    assert work == pytest.approx(np.mean(watched.worker_times[20:]))
    assert 0 < share == pytest.approx(sum(watched.wasted[20:]) / sum(watched.worker_times[20:]))
    typical = watched.typical().time
    assert typical in watched.times
    assert abs(typical - time) < np.std(watched.times)


def test_the_picture_is_wide_and_the_frames_of_the_animation_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "save", DRAW)
    policies = [LEARNING["Learner"](policy, 4) for policy in ("gta", "default")]
    with Image.open(pictures.draw(policies, FIVE, tmp_path / "who-waits")[0]) as picture:
        assert picture.width == 1600
    LEARNING["animate"](policies, tmp_path / "learning.gif")
    with Image.open(tmp_path / "learning.gif") as animation:
        assert (animation.n_frames, animation.info["loop"]) == (4, 0)
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(animation)]
    assert all((one != other).any() for one, other in pairwise(frames))
    assert (frames[0][2, 2] == 255).all(), "the paper is white"


def test_an_animation_has_few_frames_from_the_first_round_to_the_last() -> None:
    chosen = LEARNING["frame_rounds"](100_000)
    assert (chosen[0], chosen[-1]) == (1, 100_000)
    assert len(chosen) * LEARNING["SECONDS"] + LEARNING["LAST_SECONDS"] <= 12
