"""Tables in LaTeX, read by a parser."""

import re
from collections.abc import Sequence

import pytest

from ata_gym.bench.report.table import Table


def assert_latex(text: str, tables: Sequence[Table]) -> None:
    """Assert that a text is LaTeX with these tables, cell by cell."""
    latexwalker = pytest.importorskip("pylatexenc.latexwalker", reason="pylatexenc is missing")
    plain = pytest.importorskip("pylatexenc.latex2text").LatexNodes2Text().latex_to_text
    nodes, *_ = latexwalker.LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    found = [node for node in nodes if node.isNodeType(latexwalker.LatexEnvironmentNode)]
    assert [node.environmentname for node in found] == ["tabular"] * len(tables)
    assert not "".join(
        node.latex_verbatim()
        for node in nodes
        if node not in found and not node.isNodeType(latexwalker.LatexCommentNode)
    ).strip()
    for node, table in zip(found, tables, strict=True):
        inside = node.latex_verbatim()
        columns = re.match(r"\\begin{tabular}{([lr]+)}", inside)[1]
        assert len(columns) == len(table.columns)
        top, body, bottom = (
            inside.partition(rf"\{rule}rule")[2] for rule in ("top", "mid", "bottom")
        )
        assert top
        assert bottom.strip() == r"\end{tabular}"
        lines = body.removesuffix(bottom).removesuffix(r"\bottomrule").strip().splitlines()
        rows = [row for row in table.rows if row]
        assert len(lines) == len(rows)
        for line, row in zip(lines, rows, strict=True):
            cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
            shown = [" ".join(plain(cell).split()) for cell in cells]
            assert shown == [" ".join(cell.split()) for cell in row]
