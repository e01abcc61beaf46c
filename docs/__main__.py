"""``python -m docs FOLDER``: build the site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.site.reference import build


def main() -> None:
    """Build, and say what was left out; exit code 1 with what is wrong if anything is."""
    parser = argparse.ArgumentParser(
        prog="python -m docs",
        description="Build the site of ata-gym: guides, notebooks and the API.",
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("build", "docs"),
        help="default: build/docs",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="leave it out; repeatable",
    )
    given = parser.parse_args()
    folder = given.folder
    try:
        built = build(folder, given.without)
    except ValueError as error:
        sys.exit(str(error))
    for name, reason in built.left_out.items():
        print(f"left out: {name} ({reason})")
    if built.faults:
        sys.exit(
            "\n".join(
                [
                    *built.faults,
                    'The site is whole with all extras: pip install "ata-gym[all,dev]"',
                ],
            ),
        )
    print(f"{built.pages} pages: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
