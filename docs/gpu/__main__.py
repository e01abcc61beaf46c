"""Run the tests that need a GPU within a limit of time, and list their outcomes.

The table is printed, and written into their page.

The first step is the import of both packages. Then come the tests of the page, in the order of its
rows. Each row of the table is printed as soon as it is known, and the page is written after each
test, so that a run that is cut off loses nothing. A test that does not end is given up, and the
tests after it are run. Without a GPU the page stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from docs.gpu.page import PAGE, ROOT, Machine, Outcome, ordered_tests, summary, with_results
from docs.gpu.recorder import FILE

_LONGEST_TEST = 150.0
"""Seconds after which a test is given up.

A test compiles a model, or starts three processes, in less than a minute.
"""

Lines = Callable[[], list[dict[str, str]]]

_MACHINE = """
import torch
count = torch.cuda.device_count()
print(count)
print(f"{count} x {torch.cuda.get_device_name()}" if count else "no CUDA device")
print(torch.__version__)
"""


class Report:
    """The outcomes of the tests so far: printed as a table while it grows.

    It is written into the page where there is a GPU.
    """

    def __init__(self, machine: Machine, has_gpu: bool) -> None:
        self._machine = machine
        self._has_gpu = has_gpu
        self._outcomes: list[Outcome] = []
        self._printed: set[str] = set()

    def print_head(self) -> None:
        """Print what the tests run on, and the head of the table."""
        print("on {}, driver {}, torch {}, {}\n".format(*self._machine))
        print("| test | outcome |\n|---|---|", flush=True)

    def add(self, outcome: Outcome) -> None:
        """Take an outcome; the row of a test is printed when the next test begins."""
        if self._outcomes and self._outcomes[-1].test != outcome.test:
            self.print_rows()
        self._outcomes.append(outcome)
        if self._has_gpu:
            page = with_results(
                PAGE.read_text(encoding="utf-8"), summary(self._outcomes), self._machine
            )
            PAGE.write_text(page, encoding="utf-8")

    def print_rows(self) -> None:
        """Print the rows that are not printed yet."""
        for test, text in summary(self._outcomes).items():
            if test not in self._printed:
                print(f"| `{test}` | {text} |", flush=True)
                self._printed.add(test)

    @property
    def failed(self) -> bool:
        """Whether a test failed, or did not end."""
        return any(outcome.result not in {"passed", "skipped"} for outcome in self._outcomes)


def main() -> None:
    """Run the tests; the exit code is 1 if one failed, did not end, or was not reached."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.gpu",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument(
        "tests",
        nargs="*",
        help="rows of the page that contain one of these texts; default: all",
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it (8)")
    parser.add_argument(
        "--log",
        type=Path,
        default=ROOT / "build" / "gpu.log",
        help="for all that pytest says",
    )
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    options.log.write_bytes(b"")
    end = time.monotonic() + 60.0 * options.minutes
    tests = ordered_tests(PAGE.read_text(encoding="utf-8"))
    chosen = [
        test for test in tests if not options.tests or any(text in test for text in options.tests)
    ]
    if not chosen:
        sys.exit(f"no row of {PAGE.relative_to(ROOT)} contains any of {options.tests}")
    code = (
        "import numpy, ata_gym, ata_policies; print(f'both packages import with numpy"
        " {numpy.__version__}')"
    )
    if subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        check=False,
    ).returncode:
        sys.exit("no test can run before both packages import")
    answer = subprocess.run(
        [sys.executable, "-c", _MACHINE],
        check=True,
        capture_output=True,
        text=True,
    )
    count, device, torch = answer.stdout.splitlines()
    machine = Machine(device, driver(), torch, datetime.now(UTC).date().isoformat())
    # both end the tests, and print the outcomes so far
    signal.signal(
        signal.SIGTERM,
        signal.default_int_handler,
    )
    report = Report(machine, has_gpu=int(count) > 0)
    try:
        report.print_head()
        not_reached = run(chosen, report, options.log, end)
    except KeyboardInterrupt:
        report.print_rows()
        sys.exit("cut off")
    report.print_rows()
    for test in not_reached:
        print(f"| `{test}` | not reached |")
    print(f"\n{options.log} has the whole output of pytest")
    if int(count) == 0:
        print(f"{PAGE.relative_to(ROOT)} stays as it is: no GPU is here")
    sys.exit(1 if report.failed or not_reached else 0)


def driver() -> str:
    """The version of the driver of NVIDIA; - if it does not say."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "-"
    return answer.stdout.split()[0]


def run(tests: list[str], report: Report, log: Path, end: float) -> list[str]:
    """Run tests until a moment of the clock, and return those that were not reached.

    One process runs as many of them as it can. Where it dies, or a test does not end, the next
    process begins with the test after that one.
    """
    not_reached = list(tests)
    while not_reached and time.monotonic() < end:
        last = run_some(not_reached, report, log, end)
        if last not in not_reached:  # nothing has begun: there is no sense in trying again
            break
        not_reached = not_reached[not_reached.index(last) + 1 :]
    return not_reached


def run_some(tests: list[str], report: Report, log: Path, end: float) -> str:
    """Run tests in one process until it ends, or is ended; return the last one that began.

    The text is empty if no test began.
    """
    test = ""
    begun = time.monotonic()
    finished = True
    with running(tests, log) as (process, lines):
        while True:
            # asked first: what it wrote before its end is read below
            ended = process.poll() is not None
            for line in lines():
                finished = "ended" in line
                if finished:
                    report.add(Outcome(test, line["result"], line["reason"], line["figures"]))
                else:
                    test = line["started"].partition("[")[0]
                    begun = time.monotonic()
            spent = time.monotonic() - begun
            if ended or time.monotonic() > end or (spent > _LONGEST_TEST and not finished):
                break
            time.sleep(0.2)
    if not finished:
        if ended:
            result = "ended its process"
        else:
            result = f"did not end in {spent:.0f} s"
        report.add(Outcome(test, result))
    return test


@contextmanager
def running(tests: list[str], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], Lines]]:
    """A process of pytest that runs tests, and a reader of its recorder's new lines."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "docs.gpu.recorder",
        "-p",
        "no:cacheprovider",
        "-rA",
    ]
    command += [f"--rootdir={ROOT}", *tests]  # the names of tests are relative to it
    with tempfile.TemporaryDirectory() as folder, log.open("ab") as output:
        file = Path(folder, "lines")
        file.touch()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=output,
            env=os.environ | {FILE: str(file)},
            start_new_session=True,
        )
        read = 0

        def lines() -> list[dict[str, str]]:
            nonlocal read
            new = file.read_bytes()[read:].rpartition(b"\n")[0]
            if new:
                read += len(new) + 1
            return [json.loads(line) for line in new.splitlines()]

        try:
            yield process, lines
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the ranks that its tests have started
            process.wait()


if __name__ == "__main__":
    main()
