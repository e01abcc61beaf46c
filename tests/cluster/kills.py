"""Workers that are killed, ended and stopped at random moments under torchrun, torchft and Ray:
after each, every round that counts has exactly B tasks, and the weights of one process in double
precision.

    python -m tests.cluster.kills --torchrun 14 --torchft 13 --ray 13
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.disturbances import counted, drawn_kinds
from tests.cluster.torchrun import kills as ranks, replicas
from tests.fuzz import actors

ENGINES: dict[str, Callable[..., dict[str, Any]]] = {
    "torchrun": ranks.attempt,
    "torchft": replicas.attempt,
    "ray": actors.attempt,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kills", description=__doc__)
    for engine in ENGINES:
        parser.add_argument(f"--{engine}", type=int, default=0, help="how many disturbances")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for place, (engine, attempt) in enumerate(ENGINES.items()):
        number = getattr(given, engine)
        if not number:
            continue
        rng = np.random.default_rng([place, given.seed])
        kinds = drawn_kinds(rng, number)
        start = time.monotonic()

        def say(text: str, start: float = start) -> None:
            print(f"{time.monotonic() - start:7.2f} s  {text}")
            sys.stdout.flush()

        print(f"{engine}: {counted(kinds)}")
        with tempfile.TemporaryDirectory() as folder:
            told = attempt(rng, Path(folder), kinds, say=say)
        say(", ".join(f"{name}: {value}" for name, value in told.items()))


if __name__ == "__main__":
    main()
