"""The README stays short; ``test_pages.py`` runs what is in it."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")


def test_it_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) <= 150
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4  # a round, and a door for each kind of user
    assert all(len([line for line in block.splitlines() if line.strip()]) <= 10 for block in blocks)
