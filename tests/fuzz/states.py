"""A state with a wrong number is refused at the door, or played on legally: no crash, no hang,
nothing illegal.

The states are tried in a process of their own, whose kernels check the bounds of arrays. It says
what it is about to try, so that what a crash or a hang was about is known.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.utils.ranges import Within, declared
from ata_gym.utils.trees import leaves, rebuild
from ata_policies.steps import decide, play

N = 4
BUDGET = 5
ROWS = 2
PLAYED = 6
MORE = 3
COMBINATIONS = (
    *(
        "thompson:memory=window",
        "thompson-beta:memory=window:unit=rounds",
        "ata:memory=discount",
        "kl-gamma:memory=discount",
    ),
    *(
        "thompson:memory=restarting:detector=cusum",
        "kl-gamma:memory=restarting:detector=glr",
        "ata:availability=True",
    ),
    *("certainty-equivalence:memory=prior", "lb-bsp-federated:predictor=linear:forecast=time"),
)
"""Parts of policies that no preset has."""
WRONG = {
    "i": (-1, -2, 0, 1, 10**6, -(10**6), 2**31 - 1, 2**40 - 1, 2**62, -(2**62)),
    "f": (
        np.nan,
        np.inf,
        -np.inf,
        -1.0,
        0.0,
        5e-324,
        1e-300,
        0.5,
        1e6,
        2.0**50,
        1e300,
        -1e300,
        1.7e308,
    ),
}
"""By kind of number; an integer that its type cannot hold is cut to the largest that it can."""
_WAIT = 900.0
"""Seconds in which many tries are done, with the compilation of the kernels."""


class Try(NamedTuple):
    policy: str
    leaf: str
    value: float
    place: Any
    """The entries that have it, as an index of numpy."""
    price: float


LAST = -1
EVERYWHERE = ...
"""The places of one entry in the last row, and of all entries."""


class Game(NamedTuple):
    policy: Any
    env: Any
    observation: Any
    state: Any
    checkpoint: Any


@cache
def played(name: str, price: float) -> Game:
    kind = ata_policies.load(name)
    pool = shifted_exponential(np.arange(1.0, N + 1), np.arange(1.0, N + 1))
    env: Any = gym.make_vec(kind.env_id, num_envs=ROWS, pool=pool, budget=BUDGET, price=price)
    policy = ata_policies.make(name, env)
    *_, last = islice(play(policy, env, seed=3), PLAYED)
    return Game(policy, env, last.next_observation, last.state, env.unwrapped.checkpoint())


def tries(name: str) -> Iterator[Try]:
    """Every number of every leaf of integers and floats of a policy's state: one entry, a column or
    all of them.
    """
    for price in (0.1, 0.0) if ata_policies.load(name).priced else (0.1,):
        for leaf, array, within in declared(played(name, price).state):
            if within:
                columns = max((np.size(bound) for bound in (within.low, within.high)), default=1)
            else:
                columns = 1
            places = [
                LAST,
                EVERYWHERE,
                *((..., column) for column in range(columns) if columns > 1),
            ]
            for value, place in product(WRONG.get(np.asarray(array).dtype.kind, ()), places):
                yield Try(name, leaf, value, place, price)


def tampered(game: Game, one: Try) -> Any:
    changed = []
    for name, array in leaves(game.state):
        leaf = np.array(array)
        if name == one.leaf and leaf.size:
            if leaf.dtype.kind == "i":
                limits = np.iinfo(leaf.dtype)
                value: Any = min(max(int(one.value), limits.min), limits.max)
            else:
                value = one.value
            with np.errstate(over="ignore"):  # beyond what float32 holds
                leaf[(LAST,) * leaf.ndim if one.place == LAST else one.place] = value
        changed.append(leaf)
    return rebuild(game.state, changed)


def outcome(one: Try) -> str:
    """What became of it: "refused" at the door, "legal", or what went wrong."""
    game = played(one.policy, one.price)
    game.env.unwrapped.restore(game.checkpoint)
    state = tampered(game, one)
    observation = game.observation
    try:
        game.policy.check_state(state, ROWS)
    except ValueError:
        return "refused"
    for _ in range(MORE):
        try:
            action, state = decide(game.policy, game.env, observation, state)
        except Exception as error:  # whatever it is, it is not what a user should see
            return f"{type(error).__name__}: {error}"
        try:
            observation = game.env.step(action)[0]
        except ValueError as error:
            return f"illegal: {error}"
    return "legal"


def undeclared(name: str) -> list[str]:
    """Leaves of a policy's state whose fields do not say what their numbers may be; keys may be
    any.
    """
    said: Iterator[tuple[str, Any, Within | None]] = declared(played(name, 0.1).state)
    return [
        leaf
        for leaf, array, within in said
        if within is None and np.asarray(array).dtype.kind in "if"
    ]


def in_child(chosen: list[Try], bounds: bool, wait: float = _WAIT) -> list[str]:
    """Try some in another process, whose kernels may check bounds; a line for each that was neither
    refused nor legal.

    If it crashes, or does not end in time, the last line before says what it was trying.
    """
    environment = dict(os.environ)
    if bounds:  # kernels that check are no others, so they are kept in another place
        environment |= {
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(Path(__file__).parent / "__pycache__" / "bounds"),
        }
    with tempfile.NamedTemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.states"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        try:
            process.communicate("\n".join(map(repr, map(tuple, chosen))), timeout=wait)
            ended = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = "did not end"
        said.seek(0)
        lines = said.read().splitlines()
    if lines[-1:] != ["done"]:
        return [*lines, f"then it {ended}"][-3:]
    return [line for line in lines if "->" in line]


def attempt(rng: np.random.Generator, folder: Path) -> None:
    del folder
    name = str(rng.choice([*ata_policies.names(), *COMBINATIONS]))
    wrong = in_child(list(tries(name)), bounds=True)
    assert not wrong, "\n".join(wrong)


def _main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        one = Try(*eval(line, {"nan": np.nan, "inf": np.inf, "Ellipsis": ...}))
        print(line.strip(), flush=True)
        found = outcome(one)
        if found not in ("refused", "legal"):
            print(f"{one.policy} {one.leaf} {one.value} {one.place} -> {found}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    _main()
