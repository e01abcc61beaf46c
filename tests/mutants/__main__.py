"""Change one token of the source at a time, and see whether a test fails: ``python -m tests.mutants --places 200``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.places import SOURCES, Place, sample
from tests.mutants.recording import COVERAGE, DURATIONS, SAVED_AT, Recording

ROOT = Path(__file__).parents[2]
_PYTEST = [sys.executable, "-m", "pytest", "-q"]


def mutants(
    places: Annotated[int, typer.Option(help="How many places are changed, one after the other.")] = 200,
    seed: Annotated[int, typer.Option(help="The places are drawn with it.")] = 0,
    room: Annotated[str, typer.Option(help="One room only, such as envs or policies/beliefs.")] = "",
    jobs: Annotated[int, typer.Option(help="Mutants that are tested at a time.")] = 2,
    seconds: Annotated[float, typer.Option(help="The longest time of the tests of one mutant.")] = 120.0,
    out: Annotated[Path, typer.Option(help="The folder of copies and results; a run that was stopped goes on.")] = Path(
        "build/mutants"
    ),
) -> None:
    """Say for each room how many mutants its tests find, and show the mutants that live."""
    console = Console(stderr=True)
    folder = out.resolve() / _checksum()
    copies = [_copy(folder / f"copy-{number}" / "ata-gym") for number in range(jobs)]
    if not (folder / DURATIONS).is_file():
        console.print("Running all tests once, to see which test runs which line. This takes ten minutes or more.")
        _record(copies[0], folder, jobs)
    recording = Recording(copies[0], folder)
    results = folder / "results.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    known = {Place(*place): outcome for *place, outcome in map(json.loads, lines)}
    chosen = sample(ROOT, places, seed, room)
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)
    with ThreadPoolExecutor(jobs) as threads, results.open("a", encoding="utf-8") as file:
        running = {
            threads.submit(_test, place, recording, free, seconds): place for place in chosen if place not in known
        }
        for future in track(as_completed(running), "Testing mutants", len(running), console=console):
            place = running[future]
            known[place] = future.result()
            print(json.dumps([*place, known[place]]), file=file, flush=True)
    _report({place: known[place] for place in chosen})


def _checksum() -> str:
    """A name for the present content of the checkout."""
    content = hashlib.sha256()
    for path in _files():
        content.update(path.encode() + (ROOT / path).read_bytes())
    return content.hexdigest()[:12]


def _files() -> list[str]:
    """The files of the checkout, those that Git does not know yet too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file())


def _copy(folder: Path) -> Path:
    """A copy of the checkout, in which files are changed; beside it is what lies beside the checkout."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in _files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    shared, beside = folder.parent / "shared", ROOT.parent / "shared"
    if beside.is_dir() and not shared.exists():
        shared.symlink_to(beside)
    return folder


def _environment(copy: Path, **more: str) -> Mapping[str, str]:
    """The environment of tests in a copy; machine code of mutants is kept beside it."""
    own = {"PYTHONPATH": f"{copy}{os.pathsep}{copy / 'policies'}", "NUMBA_CACHE_DIR": str(copy.parent)}
    return os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"} | more


def _record(copy: Path, folder: Path, jobs: int) -> None:
    """Run all tests, and keep which lines each of them runs."""
    config = folder / "coverage.ini"
    config.write_text(
        f"[run]\ndata_file = {folder / COVERAGE}\ndisable_warnings = no-data-collected,module-not-imported\n"
    )
    command = [*_PYTEST, "-n", str(jobs if jobs > 1 else 0), "-m", "not benchmark", "-p", "tests.mutants.recording"]
    command += [*(f"--cov={copy / source}" for source in SOURCES), "--cov-context=test", "--cov-report="]
    environment = _environment(copy, **{SAVED_AT: str(folder)})
    ended = subprocess.run([*command, f"--cov-config={config}"], cwd=copy, env=environment, check=False)
    if ended.returncode not in (0, 1):
        (folder / DURATIONS).unlink(missing_ok=True)
        raise SystemExit("the tests did not run to their end: mend that first")


def _test(place: Place, recording: Recording, free: SimpleQueue[Path], seconds: float) -> str:
    """Test one mutant in a copy that is free: "found", "no end" or "lives"."""
    tests = recording.tests_of(place, seconds)
    if not tests:
        return "lives"
    copy = free.get()
    path, chosen = copy / place.file, copy.parent / "tests.txt"
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(place.mutated(source), encoding="utf-8")
        chosen.write_text("\n".join(tests), encoding="utf-8")
        command, silent = [*_PYTEST, "-x", "-n", "0", "-p", "no:cacheprovider", f"@{chosen}"], subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=copy, env=_environment(copy), start_new_session=True, stdout=silent, stderr=silent
        )
        try:
            return "lives" if process.wait(180.0 + 4.0 * seconds) in (0, 5) else "found"
        except subprocess.TimeoutExpired:
            return "no end"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    finally:
        path.write_text(source, encoding="utf-8")
        free.put(copy)


def _report(outcomes: Mapping[Place, str]) -> None:
    """Print the rate of each room, and the mutants that live."""
    table = Table("room", "mutants", "found", "rate", title=f"{len(outcomes)} mutants")
    rooms = sorted({place.room for place in outcomes})
    for room in [*rooms, ""]:
        own = [outcome != "lives" for place, outcome in outcomes.items() if place.room.startswith(room)]
        table.add_row(room or "all", str(len(own)), str(sum(own)), f"{sum(own) / max(len(own), 1):.0%}")
    console = Console()
    console.print(table)
    for place in sorted(place for place, outcome in outcomes.items() if outcome == "lives"):
        source = (ROOT / place.file).read_text(encoding="utf-8")
        before, after = (text.splitlines()[place.line - 1] for text in (source, place.mutated(source)))
        console.print(f"{place.file}:{place.line}\n-{before}\n+{after}", markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(mutants)
