"""A decision of a default is followed in a few folders without going back and forth, and a step as
it is told.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from posixpath import dirname
from types import FrameType
from typing import Any

import gymnasium as gym
import pytest

import ata_gym
import ata_policies

ROOTS = [Path(package.__file__).parent for package in (ata_gym, ata_policies)]
GROUND = ROOTS[0] / "utils"
"""What all rooms stand on: arrays that are checked, kernels that are called.

No reader follows a decision into it.
"""


def followed(call: Callable[[], Any]) -> tuple[Any, list[tuple[str, str]]]:
    """What a call returns, and the calls within, each by the files of the caller and of what it
    calls.

    A kernel has no frame, so calling it is part of the line that calls it.
    """
    found: list[tuple[str, str]] = []

    def follow(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (file := own(frame)):
            above = frame.f_back
            while above is not None and not own(above):
                above = above.f_back
            found.append((own(above) if above else "", file))

    sys.setprofile(follow)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, found


def own(frame: FrameType) -> str:
    file = Path(frame.f_code.co_filename)
    root = next((root for root in ROOTS if file.is_relative_to(root)), None)
    if root and not file.is_relative_to(GROUND):
        return file.relative_to(root.parent).as_posix()
    return ""


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("distribution-learner", "ata_gym/TaskAllocation-v0"),
        ("race", "ata_gym/TaskRace-v0"),
        ("dispatch", "ata_gym/TaskDispatch-v0"),
    ],
)
def test_a_decision_is_followed_in_at_most_six_folders_fifteen_files_and_five_returns(
    name: str,
    env_id: str,
) -> None:
    """The longest of some decisions, which plans where some workers were never tried.

    Coming back to the caller is no step, since its reader has never left it.
    """
    env: Any = gym.make_vec(
        env_id,
        num_envs=1,
        vectorization_mode="vector_entry_point",
        scenario="icml2025-cifar100",
    )
    policy, (observation, _), state, paths = (
        ata_policies.make(name, env),
        env.reset(seed=0),
        None,
        [],
    )
    files: set[str] = set()
    for _ in range(24):
        (action, state), calls = followed(partial(policy.predict, observation, state))
        files = max(files, {file for _, file in calls}, key=len)
        observation, *_ = env.step(action)
        steps = [
            (dirname(caller), dirname(file))
            for caller, file in calls
            if dirname(caller) != dirname(file)
        ]
        paths.append(
            [step for step, before in zip(steps, [None, *steps], strict=False) if step != before],
        )
    longest = max(paths[3:], key=len)  # the first ones make the first state
    assert len(longest) > 6
    folders = len({folder for _, folder in longest})
    returns = len(longest) - folders  # into a folder that it has entered before
    assert (folders <= 6, returns <= 5) == (True, True), "\n".join(map(str, longest))
    # As CONTRIBUTING.md says.
    assert len(files) <= 15, "\n".join(sorted(files))


def test_the_way_of_a_step_is_told_as_it_is() -> None:
    env: Any = gym.make("ata_gym/TaskAllocation-v0", scenario="five-workers").unwrapped
    env.reset(seed=0)
    _, calls = followed(partial(env.step, env.action_space.sample()))
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    way = page.partition("`env.step(action)`:")[2].partition("`policy.predict(")[0]
    told = re.findall(r"`([\w/]+\.py)`", way)
    passed = {
        file for _, file in calls if file.startswith(("ata_gym/envs/", "ata_gym/simulation/"))
    }
    assert len(passed) > 5
    assert not [
        file for file in passed if not f"/{file}".endswith(tuple(f"/{one}" for one in told))
    ]
