"""Change one token of the source at a time, and see whether a test fails: ``python -m tests.mutants
--places 200``.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.mutants.copies import ROOT, changed, checksum, copy_of, environment, outcomes, run_in
from tests.mutants.places import SOURCES, Place, sample
from tests.mutants.recording import COVERAGE, DURATIONS, SAVED_AT, Recording

_PYTEST = [sys.executable, "-m", "pytest", "-q"]


def mutants(
    places: Annotated[
        int,
        typer.Option(help="How many places are changed, one after the other."),
    ] = 200,
    seed: Annotated[int, typer.Option(help="The places are drawn with it.")] = 0,
    room: Annotated[
        str,
        typer.Option(help="One room only, such as envs or policies/beliefs."),
    ] = "",
    jobs: Annotated[int, typer.Option(help="Mutants that are tested at a time.")] = 2,
    seconds: Annotated[
        float,
        typer.Option(help="The longest time of the tests of one mutant."),
    ] = 120.0,
    out: Annotated[
        Path,
        typer.Option(help="The folder of copies and results; a run that was stopped goes on."),
    ] = Path("build/mutants"),
) -> None:
    folder = out.resolve() / checksum()
    copies = [copy_of(folder / f"copy-{number}" / "ata-gym") for number in range(jobs)]
    if not (folder / DURATIONS).is_file():
        print(
            "Running all tests once, to see which test runs which line. It takes ten minutes.",
            file=sys.stderr,
        )
        _record(copies[0], folder, jobs)
    recording = Recording(copies[0], folder)

    def work(place: Place, copy: Path) -> str:
        return _test(place, recording.tests_of(place, seconds), copy, seconds)

    chosen = sample(ROOT, places, seed, room)
    _report(outcomes(folder / "results.jsonl", chosen, copies, work, "Testing mutants"))


def _record(copy: Path, folder: Path, jobs: int) -> None:
    config = folder / "coverage.ini"
    config.write_text(
        f"[run]\ndata_file = {folder / COVERAGE}\ndisable_warnings ="
        " no-data-collected,module-not-imported\n",
    )
    command = [
        *_PYTEST,
        "-n",
        str(jobs if jobs > 1 else 0),
        "-m",
        "not benchmark",
        "-p",
        "tests.mutants.recording",
    ]
    command += [
        *(f"--cov={copy / source}" for source in SOURCES),
        "--cov-context=test",
        "--cov-report=",
    ]
    own = environment(copy, **{SAVED_AT: str(folder)})
    ended = subprocess.run([*command, f"--cov-config={config}"], cwd=copy, env=own, check=False)
    if ended.returncode not in (0, 1):
        (folder / DURATIONS).unlink(missing_ok=True)
        raise SystemExit("the tests did not run to their end: mend that first")


def _test(place: Place, tests: Sequence[str], copy: Path, seconds: float) -> str:
    """Test one mutant in a copy: "found", "no end" or "lives"."""
    if not tests:
        return "lives"
    chosen = copy.parent / "tests.txt"
    chosen.write_text("\n".join(tests), encoding="utf-8")
    with changed(copy / place.file, place.mutated):
        code, _ = run_in(
            copy,
            [*_PYTEST, "-x", "-n", "0", "-p", "no:cacheprovider", f"@{chosen}"],
            180.0 + 4.0 * seconds,
        )
    if code is None:
        return "no end"
    if code in (0, 5):
        return "lives"
    return "found"


def _report(outcomes: Mapping[Place, str]) -> None:
    table = Table("room", "mutants", "found", "rate", title=f"{len(outcomes)} mutants")
    rooms = sorted({place.room for place in outcomes})
    for room in [*rooms, ""]:
        own = [
            outcome != "lives" for place, outcome in outcomes.items() if place.room.startswith(room)
        ]
        table.add_row(
            room or "all",
            str(len(own)),
            str(sum(own)),
            f"{sum(own) / max(len(own), 1):.0%}",
        )
    console = Console()
    console.print(table)
    for place in sorted(place for place, outcome in outcomes.items() if outcome == "lives"):
        source = (ROOT / place.file).read_text(encoding="utf-8")
        before, after = (
            text.splitlines()[place.line - 1] for text in (source, place.mutated(source))
        )
        console.print(
            f"{place.file}:{place.line}\n-{before}\n+{after}",
            markup=False,
            highlight=False,
        )


if __name__ == "__main__":
    typer.run(mutants)
