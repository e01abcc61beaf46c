"""Copies of the checkout, in each of which one file at a time is changed and something is run; a
run goes on.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[2]
Key = TypeVar("Key", bound=tuple[Any, ...])


def checksum(*folders: str) -> str:
    content = hashlib.sha256()
    for path in (path for path in _files() if path.startswith(folders or "")):
        content.update(path.encode() + (ROOT / path).read_bytes())
    return content.hexdigest()[:12]


def _files() -> list[str]:
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file())


def copy_of(folder: Path) -> Path:
    """A copy of the checkout, in which files are changed; beside it is what lies beside the
    checkout.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for path in _files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    shared = folder.parent / "shared"
    beside = ROOT.parent / "shared"
    if beside.is_dir() and not shared.exists():
        shared.symlink_to(beside)
    return folder


def environment(copy: Path, **more: str) -> Mapping[str, str]:
    """The environment of what runs in a copy; machine code of changed files is kept beside it."""
    own = {
        "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'policies'}",
        "NUMBA_CACHE_DIR": str(copy.parent),
    }
    return os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"} | more


@contextmanager
def changed(path: Path, change: Callable[[str], str]) -> Iterator[None]:
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(change(source), encoding="utf-8")
        yield
    finally:
        path.write_text(source, encoding="utf-8")


def run_in(copy: Path, command: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """The exit code of a command in a copy, None if it took longer than so many seconds, and what
    it printed.
    """
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment(copy),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
    return process.returncode, printed


def outcomes(
    results: Path,
    todo: Sequence[Key],
    copies: Sequence[Path],
    work: Callable[[Key, Path], Any],
    title: str,
) -> dict[Key, Any]:
    """What ``work`` finds for each of some keys in a copy that is free; what ``results`` has of
    them is not done again.

    Each outcome is a line of that file as soon as it is there, so that a run that was killed goes
    on.
    """
    if results.is_file():
        text = results.read_text(encoding="utf-8")
    else:
        text = ""
    whole = text[: text.rfind("\n") + 1]  # the last line may be cut
    found: dict[tuple[Any, ...], Any] = {
        tuple(key): outcome for *key, outcome in map(json.loads, whole.splitlines())
    }
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def done(key: Key) -> Any:
        copy = free.get()
        try:
            return work(key, copy)
        finally:
            free.put(copy)

    results.write_text(whole, encoding="utf-8")
    with ThreadPoolExecutor(len(copies)) as threads, results.open("a", encoding="utf-8") as file:
        running = {threads.submit(done, key): key for key in todo if key not in found}
        for future in track(
            as_completed(running),
            title,
            len(running),
            console=Console(stderr=True),
        ):
            found[running[future]] = future.result()
            print(json.dumps([*running[future], future.result()]), file=file, flush=True)
    return {key: found[key] for key in todo}
