"""Try every hazard again and again for a given time: ``python -m tests.fuzz --minutes 60``; a table at the end."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.hazards import HAZARDS, try_out


def main() -> int:
    """Look for what breaks; the exit code is 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, shared evenly by the hazards")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="one hazard, by the word before the colon")
    given = parser.parse_args()
    hazards, table = [name for name in HAZARDS if name.startswith(given.only)], []
    for name in hazards:
        end, seed, failed = time.monotonic() + 60 * given.minutes / len(hazards), given.seed, []
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
        first = f", the first with --seed {failed[0]} --only {name.partition(':')[0]}" if failed else ""
        table.append(f"{name}: {seed - given.seed} tries, {len(failed)} failures{first}")
    print("\n".join(table))
    return int(any("--seed" in line for line in table))


if __name__ == "__main__":
    sys.exit(main())
