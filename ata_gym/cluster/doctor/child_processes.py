"""Trials in processes of their own, which may crash or hang without harm to the doctor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from ata_gym.cluster.doctor.in_child import SECONDS

_SCRIPT = Path(__file__).with_name("in_child.py")
_GRACE = 5.0
"""Seconds in which a process that is asked to end may clean up, before it is killed."""


@dataclass(frozen=True)
class Outcome:
    """What one process of a trial left."""

    reports: dict[str, Any]
    """What it reported, by name, also if it did not come to its end."""
    fault: str = ""
    """Why it did not come to its end; empty if it did."""


class Trial:
    """Processes that run functions of ``in_child.py`` side by side, from the start of the block on.

    Where one fails, the others are ended, since they may wait for it. At the end of the block all are ended, by their
    ids: first they are asked to, then killed.

    Examples
    --------
    >>> with Trial([["imports", "math", "no_such_module"]], seconds=60) as trial:
    ...     (outcome,) = trial.outcomes()
    >>> outcome.reports
    {'math': '', 'no_such_module': "ModuleNotFoundError: No module named 'no_such_module'"}
    """

    def __init__(self, commands: Sequence[Sequence[str]], seconds: float) -> None:
        self._commands, self._seconds = commands, seconds
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Trial:
        self._temporary = tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._deadline = monotonic() + self._seconds
        try:
            for number, command in enumerate(self._commands):
                self._start(number, command)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, number: int, command: Sequence[str]) -> None:
        # -P: the doctor's folder is not put on sys.path, where its files could stand in for packages.
        line = [sys.executable, "-P", "-W", "ignore", str(_SCRIPT), str(self._folder), str(number), *command]
        with (self._folder / f"{number}.err").open("wb") as said:
            self._processes.append(
                subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
            )

    def outcomes(self) -> list[Outcome]:
        """Wait until all have ended, one has failed, or the time is over; the outcomes in the order of the commands."""
        codes = [process.poll() for process in self._processes]
        while None in codes and not any(codes) and monotonic() < self._deadline:
            sleep(0.02)
            codes = [process.poll() for process in self._processes]
        self._end()
        return [self._outcome(number, code) for number, code in enumerate(codes)]

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end()
        self._temporary.cleanup()

    def _end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        asked = monotonic()
        for process in self._processes:
            try:
                process.wait(max(0.0, asked + _GRACE - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _outcome(self, number: int, code: int | None) -> Outcome:
        reports: dict[str, Any] = {}
        file = self._folder / f"{number}.jsonl"
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            name, value = json.loads(line)
            reports[name] = value
        said = (self._folder / f"{number}.err").read_text("utf-8", errors="replace").strip()
        return Outcome(reports, "" if code == 0 else self._fault(code, said))

    def _fault(self, code: int | None, said: str) -> str:
        if code is None:
            late = monotonic() >= self._deadline
            return f"it took longer than {self._seconds:g} s" if late else "another process of the trial failed"
        if code < 0 and os.name == "posix":
            return f"the process was ended by {signal.Signals(-code).name}"
        if said.startswith("Timeout (") or "\nTimeout (" in said:  # of the script's own clock
            return f"it took longer than {SECONDS:g} s"
        return said.splitlines()[-1].strip() if said else f"the process ended with exit code {code}"
