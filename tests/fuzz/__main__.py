"""What may go wrong, tried again and again for a given time: ``python -m tests.fuzz --minutes
60``.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tests.cluster.torchrun import kills as ranks, replicas
from tests.fuzz import actors, damage, kills, policies, states

HAZARDS: dict[str, Callable[[np.random.Generator, Path], object]] = {
    "policies: any legal observation, any batch": policies.attempt,
    "inputs: mutated traces and archives": damage.read_inputs,
    "damage: mutated files of results": damage.run_again,
    "kills: SIGKILL, SIGTERM, Ctrl-C at any moment": kills.attempt,
    "ranks: processes under torchrun are killed and stopped": ranks.attempt,
    "actors: Ray's actors are killed and stopped in the midst of rounds": actors.attempt,
    "states: wrong numbers in a policy's state": states.attempt,
    "replicas: processes under torchft are killed and stopped": replicas.attempt,
}
"""Each a function of a generator and an empty folder, which tries it once and raises if it is not
handled well.
"""

_NEEDS = {ranks.attempt: "torch", actors.attempt: "ray", replicas.attempt: "torchft"}


def try_out(hazard: str, seed: int, folder: Path) -> None:
    HAZARDS[hazard](np.random.default_rng([list(HAZARDS).index(hazard), seed]), folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="how long, shared evenly by the hazards",
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="one hazard, by the word before the colon")
    given = parser.parse_args()
    here = [name for name, attempt in HAZARDS.items() if find_spec(_NEEDS.get(attempt, "numpy"))]
    hazards = [name for name in here if name.startswith(given.only)]
    table = []
    for name in hazards:
        end = time.monotonic() + 60 * given.minutes / len(hazards)
        seed = given.seed
        failed = []
        while seed == given.seed or time.monotonic() < end:
            with tempfile.TemporaryDirectory(prefix="ata-gym-fuzz-") as folder:
                try:
                    try_out(name, seed, Path(folder))
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # a panic of polars is no Exception
                    failed.append(seed)
                    print(f"{name}, seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
            seed += 1
        if failed:
            first = f", the first with --seed {failed[0]} --only {name.partition(':')[0]}"
        else:
            first = ""
        table.append(f"{name}: {seed - given.seed} tries, {len(failed)} failures{first}")
    print("\n".join(table))
    return int(any("--seed" in line for line in table))


if __name__ == "__main__":
    sys.exit(main())
