"""What all tests share."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
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

# Tables of the tests are small: polars' threads would wait for each other longer than they compute.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

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


def pytest_collection_finish() -> None:
    """Look rarely for garbage, and never among what imports have left: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium with a profile of its own, which notes what it requests and what it
    says.
    """
    webdriver = pytest.importorskip(
        "selenium.webdriver",
        reason="selenium is not installed: pip install selenium",
    )
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if not all(programs.values()):
        pytest.skip("no Chromium to look at pages: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for argument in (
        *(
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "hide-scrollbars",
        ),
        *(
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "disable-dev-shm-usage",
        ),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(
        options=options,
        service=webdriver.ChromeService(programs["chromedriver"]),
    )
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def look(browser: Any) -> Callable[..., Any]:
    def open_page(path: Path, width: int = 1400, height: int = 6000, scheme: str = "light") -> Any:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(path.as_uri())
        return browser

    return open_page
