"""``python -m docs.formats read``, or ``refused``: print a table of ``docs/guide/formats.md``."""

import argparse
from collections.abc import Iterable

from ata_gym.bench.logs.reading import FORMATS
from ata_gym.bench.logs.refused import REFUSED


def read_formats() -> str:
    """The table of the formats that are read."""
    rows = [(f"**{one.name}**", one.times_from, one.lacks) for one in FORMATS]
    return _table(("format", "where its times come from", "what is not in it"), rows)


def refused_kinds() -> str:
    """The table of the kinds of files that are refused."""
    rows = [(f"**{one.name}**", one.reason, one.cure) for one in REFUSED]
    return _table(("file", "why it cannot answer", "what to do instead"), rows)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    escaped = (tuple(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def main() -> None:
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m docs.formats", description=__doc__)
    parser.add_argument("table", choices=["read", "refused"])
    if parser.parse_args().table == "read":
        print(read_formats(), end="")
    else:
        print(refused_kinds(), end="")


if __name__ == "__main__":
    main()
