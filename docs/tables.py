"""``python -m docs.tables``: make the tables of the pages again, by their commands.

A table that a command makes stands below a comment that names its file, and the first words of its
title there: ``<!-- results/steady/leaderboard.md: Price 0 -->``. The command is the one in a block
of the pages that has the file's folder after ``--out``. A run that was killed goes on where it was,
and one that is whole is only read. A table that a command prints stands below a comment with the
command: ``<!-- printed by: python -m docs.policy_costs -->``.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
MADE = re.compile(
    r"^<!-- (?P<file>results/[^\s:]+): (?P<title>.+) -->\n(?P<table>(?:^\|.*\n)*)",
    re.MULTILINE,
)

PRINTED = re.compile(
    r"^<!-- printed by: (?P<command>.+) -->\n(?P<table>(?:^\|.*\n)*)",
    re.MULTILINE,
)


class Command(NamedTuple):
    """A command that a page shows."""

    words: list[str]
    missing: str
    """The variable that it needs and that is not set; or empty."""


def pages() -> list[Path]:
    """All pages of the project, without those of installed packages."""
    folders = ("policies", "notebooks", "tests", "docs")
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(path for folder in folders for path in (ROOT / folder).rglob("*.md")),
        ],
    )


def commands(text: str) -> Iterator[tuple[str, Command]]:
    """The folder after ``--out``, and the command, of each call of ``ata-gym`` in a page."""
    for line in "\n".join(_BLOCK.findall(text)).replace("\\\n", " ").splitlines():
        words = shlex.split(os.path.expandvars(line), comments=True)
        if words[:1] == ["ata-gym"] and "--out" in words:
            unset, *_ = [*re.findall(r"\$\w+", " ".join(words)), ""]
            yield words[words.index("--out") + 1], Command(words[1:], unset)


def table(text: str, title: str) -> str:
    """The lines of the table in a Markdown file whose title begins with some words.

    Raises:
        ValueError: If there is none.
    """
    found = re.search(
        rf"^{re.escape(title)}.*\n(?:[^|\n].*\n|\n)*((?:^\|.*\n)+)",
        text,
        re.MULTILINE,
    )
    if found is None:
        raise ValueError(f"no table there has a title that begins with {title!r}")
    return found[1]


def made_again(text: str, files: dict[str, str]) -> tuple[str, list[str]]:
    """A page with the tables of some files by name, and a line on whether each was changed."""
    lines = []

    def replace(found: re.Match[str]) -> str:
        if found["file"] not in files:
            return found[0]
        new = table(files[found["file"]], found["title"])
        lines.append(
            f"{'same   ' if new == found['table'] else 'changed'} {found['file']}:"
            f" {found['title']}",
        )
        return found[0].removesuffix(found["table"]) + new

    return MADE.sub(replace, text), lines


def printed_again(text: str) -> tuple[str, list[str]]:
    """A page with the tables that commands print, made again, and a line on each."""
    lines = []

    def replace(found: re.Match[str]) -> str:
        words = shlex.split(os.path.expandvars(found["command"]))
        if unset := re.findall(r"\$\w+", " ".join(words)):
            lines.append(f"left out {found['command']}: set {unset[0].removeprefix('$')}")
            return found[0]
        if words[0] == "python":
            program = [sys.executable]
        else:
            program = [sys.executable, "-m", "ata_gym"]
        said = subprocess.run(
            [*program, *words[1:]],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        new = "".join(f"{line}\n" for line in said.splitlines() if line.startswith("|"))
        lines.append(f"{'same   ' if new == found['table'] else 'changed'} {found['command']}")
        return found[0].removesuffix(found["table"]) + new

    return PRINTED.sub(replace, text), lines


def main() -> None:
    """Run what is asked for, and say of each table whether it has changed.

    The exit code is 1 if a command fails.
    """
    parser = argparse.ArgumentParser(
        prog="python -m docs.tables",
        description="Make the tables of the pages again.",
    )
    parser.add_argument(
        "folders",
        nargs="*",
        help="only the tables of these folders, such as results/steady",
    )
    given = parser.parse_args()
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    wanted = {
        str(Path(found["file"]).parent) for text in texts.values() for found in MADE.finditer(text)
    }
    known = {folder: command for text in texts.values() for folder, command in commands(text)}
    if strange := [folder for folder in given.folders if folder not in wanted]:
        sys.exit(f"no table is of {', '.join(strange)}; there are {', '.join(sorted(wanted))}")
    made: set[str] = set()
    for folder in sorted(given.folders or wanted):
        command = known[folder]
        if command.missing:
            print(
                f"left out {folder}: set {command.missing.removeprefix('$')} to the folder that its"
                " command reads",
            )
            continue
        print(f"ata-gym {shlex.join(command.words)}", flush=True)
        if subprocess.run(
            [sys.executable, "-m", "ata_gym", *command.words],
            cwd=ROOT,
            check=False,
        ).returncode:
            sys.exit(f"{folder} was not made, and the tables of other folders are as they were")
        made.add(folder)
    files = {
        path.relative_to(ROOT).as_posix(): path
        for folder in made
        for path in (ROOT / folder).glob("*.md")
    }
    contents = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    for page, text in texts.items():
        new, lines = made_again(text, contents)
        if not given.folders:
            new, more = printed_again(new)
            lines += more
        if new != text:
            page.write_text(new, encoding="utf-8")
        for line in lines:
            print(f"{page.relative_to(ROOT)}: {line}")


if __name__ == "__main__":
    main()
