"""Policies played to the end, into folders of their own, and a browser to look at pages."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.bench.store.folder import Folder, open_folder
from tests.bench.by_hand import play_all
from tests.bench.sketches import sketches  # noqa: F401


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., Folder]:
    def play(
        experiment: Experiment,
        *policies: str,
        name: str = "out",
        run_of: type[PolicyRun] = PolicyRun,
    ) -> Folder:
        folder = open_folder(tmp_path / name, experiment.config())
        assert play_all(experiment, policies, folder, run_of, effort=Effort(jobs=1)) == {}
        return folder

    return play


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
