"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ata-gym", deadline=None, derandomize=True)
settings.load_profile("ata-gym")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces and images, beside the checkout."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data (shared/data beside the checkout) is not here")
    return folder
