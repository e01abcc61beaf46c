"""A few random tries of each hazard; ``make fuzz`` goes on for an hour."""

from __future__ import annotations

import pytest

pytest.importorskip("polars", reason="the extra bench")

from tests.fuzz.hazards import HAZARDS, SMALL, try_out


@pytest.mark.parametrize("hazard", [name for name in HAZARDS if name.partition(":")[0] in SMALL])
def test_nothing_breaks(tmp_path, hazard):
    for seed in range(SMALL[hazard.partition(":")[0]]):
        (tmp_path / str(seed)).mkdir()
        try_out(hazard, seed, tmp_path / str(seed))
