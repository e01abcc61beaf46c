"""What all tests share."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from ata_gym.utils.extras import MissingExtraError

settings.register_profile("ata-gym", deadline=None, derandomize=True)
settings.load_profile("ata-gym")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces and images, beside the checkout."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data (shared/data beside the checkout) is not here")
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test where an extra that it needs is not installed."""
    try:
        return (yield)
    except MissingExtraError as error:
        pytest.skip(str(error))
