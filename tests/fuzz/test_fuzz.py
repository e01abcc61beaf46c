"""A few random tries of some hazards, the others have tests of their own; ``make fuzz`` goes on for
an hour.
"""

import pytest

pytest.importorskip("polars", reason="the extra bench")

from tests.fuzz.__main__ import HAZARDS, try_out

TRIES = {"policies": 8, "inputs": 60, "damage": 6}


@pytest.mark.parametrize("hazard", [name for name in HAZARDS if name.partition(":")[0] in TRIES])
def test_nothing_breaks(tmp_path, hazard):
    for seed in range(TRIES[hazard.partition(":")[0]]):
        (tmp_path / str(seed)).mkdir()
        try_out(hazard, seed, tmp_path / str(seed))
