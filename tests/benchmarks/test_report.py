"""How large the page of a large leaderboard is, and how soon a browser shows it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.experiment.run import SCHEMA, allocation_frame
from ata_gym.bench.experiment.store import open_folder, write_frame
from ata_gym.bench.page.note import write_note
from ata_gym.bench.page.render import NAME
from ata_gym.cli.studies.report import write_page

pytestmark = pytest.mark.benchmark

POLICIES, SCENARIOS, SEEDS, POINTS, WORKERS = 20, 10, 20, 200, 100


def leaderboard(out: Path) -> Path:
    """A folder as a leaderboard leaves it, of random records."""
    rng, names = np.random.default_rng(0), [f"policy-{place}" for place in range(POLICIES)]
    rounds = np.unique(np.geomspace(1, 20_000, POINTS).round().astype(np.int64))
    card = {"summary": "One.", "facts": {}, "text": "", "command": "ata-gym"}
    scenarios = [f"scenario-{place}" for place in range(SCENARIOS)]
    jobs = [
        {"policy": name, "scenario": where, "folder": f"scenarios/{where}", "prices": [0.0]}
        for where in scenarios
        for name in names
    ]
    for job in jobs:
        folder = open_folder(out / job["folder"], {})
        path = folder.allocations(job["policy"])
        path.parent.mkdir(exist_ok=True)
        write_frame(path, allocation_frame(rounds, rng.random((len(rounds), WORKERS))), {})
        steps = rng.exponential(size=(SEEDS, len(rounds))).cumsum(axis=1)
        frame = {"policy": job["policy"], "seed": np.repeat(np.arange(SEEDS), len(rounds))}
        frame |= {"round": np.tile(rounds, SEEDS), "runtime": steps.ravel(), "total_worker_time": 7 * steps.ravel()}
        columns = pl.DataFrame(frame).with_columns(regret=None, support=3)
        write_frame(folder.result(job["policy"]), columns.select(pl.col(n).cast(k) for n, k in SCHEMA.items()), {})
    about = [
        {"name": name, "env": "TaskAllocation", "kind": "learner", "card": {"name": name, **card}} for name in names
    ]
    note = {"title": "large", "reference": names[0], "seeds": SEEDS, "first_seed": 0, "prices": [0.0], "remarks": []}
    note |= {"policies": about, "jobs": jobs}
    note["scenarios"] = [{"name": s, "workers": WORKERS, "budget": 50, "card": {"name": s, **card}} for s in scenarios]
    write_note(out, "leaderboard", ["ata-gym", "leaderboard"], note)
    return out


def opened(path: Path, profile: Path) -> tuple[float, float] | None:
    """Seconds until a browser has loaded a page, and until it then shows a picture; None where there is none."""
    webdriver: Any = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.set_window_size(1400, 1600)
        browser.get("about:blank")
        start = time.perf_counter()
        browser.get(path.as_uri())
        whole = time.perf_counter() - start
        start = time.perf_counter()
        browser.execute_script("document.querySelector('#front').scrollIntoView()")
        while not browser.execute_script("return Boolean(document.querySelector('#front .main-svg'))"):
            assert time.perf_counter() - start < 30
            time.sleep(0.005)
        return whole, time.perf_counter() - start
    finally:
        browser.quit()


def test_the_page_of_a_large_leaderboard(tmp_path, capsys):
    out = leaderboard(tmp_path / "large")
    start = time.perf_counter()
    size = write_page(out).stat().st_size / 1e6
    made, shown = time.perf_counter() - start, opened(out / NAME, tmp_path / "profile")
    with capsys.disabled():
        said = "no Chromium here" if shown is None else f"open in {shown[0]:.2f} s, a picture in {shown[1]:.2f} s"
        print(f"\n{POLICIES} x {SCENARIOS} x {SEEDS}: {size:.1f} MB, made in {made:.1f} s, {said}")
    assert size < 10
