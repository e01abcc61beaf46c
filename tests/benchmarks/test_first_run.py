"""What a user waits for at first: seconds by the clock in fresh processes, on an empty cache of
kernels, beside ``import numba``.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

_MADE = """
import gymnasium as gym, ata_gym, ata_policies
env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-cifar100")
observation, _ = env.reset(seed=0)
"""
_DECIDED = """
policy = ata_policies.make("{}", env)
action, state = policy.predict(observation)
"""
_DECIDED_AGAIN = """
action, state = policy.predict(env.step(action)[0], state)
"""
PROGRAMS = {
    "import numba": "import numba",
    "import ata_gym, ata_policies": "import ata_gym, ata_policies",
    "a step of the env alone": f"{_MADE}env.step(env.action_space.sample())",
    "the first decision of ata": _MADE + _DECIDED.format("ata"),
    "the first decision of the default": _MADE + _DECIDED.format("default"),
    "its second decision": _MADE + _DECIDED.format("default") + _DECIDED_AGAIN,
}


def seconds_until_done(program: str, cache: Path) -> float:
    """Seconds from the start of a process to the end of its program, without its exit.

    The processes that compile for it are ended, which would otherwise compile beside the next one.
    """
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environ.pop("NUMBA_CACHE_DIR", None)
    start = time.time()
    process = subprocess.Popen(
        [sys.executable, "-c", f"{program}\nimport time\nprint(time.time())"],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said, _ = process.communicate()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return float(said) - start


def test_the_first_run(tmp_path: Path) -> None:
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for repeat in range(5):
        for k, (name, program) in enumerate(PROGRAMS.items()):
            taken[name].append(seconds_until_done(program, tmp_path / f"{repeat}-{k}"))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    print()
    for name, times in taken.items():
        print(f"{name}: {medians[name]:.2f} s, {min(times):.2f} to {max(times):.2f}")
    assert medians["import ata_gym, ata_policies"] < medians["import numba"]
