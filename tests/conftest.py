"""What all tests share."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from ata_gym.utils.extras import MissingExtraError

settings.register_profile("ata-gym", deadline=None, derandomize=True)
settings.load_profile("ata-gym")


# A process keeps the authentication of its first Ray, and its later ones must have the same: by
# default, Ray chooses it by what lies in the user's home, and writes a token there.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)

# Each process of the tests would otherwise compile all modules anew: see the Makefile.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# as where a shell has started the tests in the background
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data (shared/data beside the checkout) is not here")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _commands_are_quick() -> Iterator[None]:
    """Commands in this process write no line of progress, however busy the machine is: their clock
    stands still.
    """
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError):  # of the extra bench
            patch.setattr("ata_gym.bench.runner.progress.monotonic", lambda: 0.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _the_machine_does_not_stop() -> Iterator[None]:
    """Files wait for no disk: a process that is killed leaves what it has written all the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    try:
        return (yield)
    except MissingExtraError as error:
        pytest.skip(str(error))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``gpu``, or ``gpu(2)`` for two devices, where it lacks them."""
    if marker := item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch")
        if marker.args:
            needed = marker.args[0]
        else:
            needed = 1
        if (there := torch.cuda.device_count()) < needed:
            pytest.skip(f"needs CUDA devices: {needed}, and torch {torch.__version__} sees {there}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures that tests on a GPU gave to pytest's ``record_property``."""
    for report in terminalreporter.stats.get("passed", ()):
        if report.user_properties:
            figures = ", ".join(f"{name}: {value}" for name, value in report.user_properties)
            terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}  {figures}")
