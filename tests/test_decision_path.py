"""A decision of a default is followed in a few folders, and without going back and forth."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import gymnasium as gym
import pytest

import ata_gym
import ata_policies

ROOTS = [Path(package.__file__).parent for package in (ata_gym, ata_policies)]
GROUND = ROOTS[0] / "utils"
"""What all rooms stand on: arrays that are checked, kernels that are called. No reader follows a decision into it."""


class Entry(NamedTuple):
    """A call from a function in one folder to a function in another one."""

    caller: str
    folder: str
    function: str


def followed(call: Callable[[], Any]) -> tuple[Any, list[Entry]]:
    """What a call returns, and its steps from one folder into another one; those that repeat the one before count once.

    A kernel has no frame, so calling it is part of the line that calls it. Coming back to the caller is no step, since
    its reader has never left it.
    """
    found: list[Entry] = []

    def follow(frame: FrameType, event: str, _: object) -> None:
        folder = _folder(frame.f_code.co_filename)
        if event != "call" or not folder:
            return
        above = frame.f_back
        while above is not None and not _folder(above.f_code.co_filename):
            above = above.f_back
        entry = Entry(_folder(above.f_code.co_filename) if above else "", folder, frame.f_code.co_qualname)
        if entry.caller != folder and (not found or found[-1][:2] != entry[:2]):
            found.append(entry)

    sys.setprofile(follow)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, found


@cache
def _folder(source: str) -> str:
    """The folder of a source file of this project, from its package on; nothing for all other files."""
    folder = Path(source).parent
    root = next((root for root in ROOTS if folder.is_relative_to(root)), None)
    if root is None or folder.is_relative_to(GROUND):
        return ""
    return folder.relative_to(root.parent).as_posix()


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("distribution-learner", "ata_gym/TaskAllocation-v0"),
        ("race", "ata_gym/TaskRace-v0"),
        ("dispatch", "ata_gym/TaskDispatch-v0"),
    ],
)
def test_a_decision_is_followed_in_at_most_six_folders_and_five_returns(name: str, env_id: str) -> None:
    """The longest of some decisions, which plans where some workers were never tried."""
    env: Any = gym.make_vec(env_id, num_envs=1, vectorization_mode="vector_entry_point", scenario="icml2025-cifar100")
    policy, (observation, _), state, paths = ata_policies.make(name, env), env.reset(seed=0), None, []
    for _ in range(24):
        (action, state), path = followed(partial(policy.predict, observation, state))
        observation, *_ = env.step(action)
        paths.append(path)
    longest = max(paths[3:], key=len)  # the first ones make the first state
    assert len(longest) > 6
    folders = len({entry.folder for entry in longest})
    returns = len(longest) - folders  # into a folder that it has entered before
    assert (folders <= 6, returns <= 5) == (True, True), "\n".join(map(str, longest))
