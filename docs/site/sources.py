"""What Sphinx reads: a folder with the project's pages and those that are written here."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.site import cards

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "pages"
FOLDERS = ("docs/guide", "findings", "notebooks", "policies", "tests/benchmarks", "tests/gpu")
"""Where the project has pages, and the files to which they link."""


def gather(folder: Path) -> None:
    """Fill a new folder."""
    shutil.copytree(PAGES, folder)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name)
    for path in (ROOT / "LICENSE", ROOT / "CITATION.cff", *ROOT.glob("*.md")):
        shutil.copy(path, folder)
    cards.write(folder)
