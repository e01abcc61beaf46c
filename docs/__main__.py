"""``python -m docs FOLDER``: build the site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.site.build import build


def main() -> None:
    """Build, and say what was left out; exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m docs",
        description="Build the site of ata-gym: guides, notebooks, cards and the API.",
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build", "docs"))
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="leave it out of the API; repeatable",
    )
    given = parser.parse_args()
    try:
        left_out, whole = build(given.folder, given.without)
    except ValueError as error:
        sys.exit(str(error))
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})")
    if not whole:
        sys.exit(
            'Above is what is wrong. The site is whole with all extras: pip install ".[all,dev]"'
        )
    files = [path for path in given.folder.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{pages} pages, {size:.0f} MB: {given.folder / 'index.html'}")


if __name__ == "__main__":
    main()
