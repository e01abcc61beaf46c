"""Whether a policy decides alike in another process, where texts have other hashes."""

import os
import pickle
import subprocess
import sys
from typing import Any

from ata_policies.checking.contract import SEED, ContractCheck
from ata_policies.checking.predict_call import Array, FaultError
from ata_policies.registry import is_of_zoo

_SALTS = ("1", "2")
"""The hashes of texts in the other process: the first that this process does not have."""
_LONGEST = 120.0
"""Seconds that the other process may take; nothing is said of one that takes longer."""


def same_in_another_process(check: ContractCheck) -> None:
    """Check that another process has the same actions, as jobs and a resumed study must.

    What follows from ``hash`` of a text, the order of a set, an address or the number of a process
    differs there. A policy that another process cannot import, such as one of a notebook, is left
    out.

    Args:
        check: The check, in which the policy was played.

    Raises:
        FaultError: If an action differs.
    """
    is_of_script = check.kind.__module__ == "__main__"
    if check.kind.privileged or is_of_script or is_of_zoo(check.kind):
        return
    observations = [step.observation for step in check.steps]
    try:
        question = pickle.dumps((check.make, check.setting, observations))
    except Exception:
        return
    own_salt = os.environ.get("PYTHONHASHSEED")
    salt = next(one for one in _SALTS if one != own_salt)
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        answer = subprocess.run(
            [sys.executable, "-m", __name__],
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": paths},
            timeout=_LONGEST,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return
    for step, action in zip(check.steps, pickle.loads(answer), strict=True):
        if (action != step.answer.action).any():
            raise FaultError(
                f"in another process it has another action in round {step.round}: it must not"
                " depend on hash() of a text, on the order of a set, or on numbers of objects and"
                " processes",
            )


def _actions(make: Any, setting: Any, observations: Any) -> list[Array]:
    """The actions of a new policy for observations that follow each other."""
    policy = make(setting, seed=SEED)
    state = None
    actions = []
    for observation in observations:
        action, state = policy.predict(observation, state, deterministic=True)
        actions.append(action)
    return actions


if __name__ == "__main__":
    # what the policy prints is no answer
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        answers.write(pickle.dumps(_actions(*pickle.load(sys.stdin.buffer))))
