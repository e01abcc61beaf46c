"""The Markdown, notebooks, pictures and scripts of the project that are pages of the site."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
PAGES = Path(__file__).parent / "pages"

_LINK = re.compile(r"\]\(([^()\s#]+)|src=\"([^\"]+)\"|^(?:```|:::)\{image\} (\S+)", re.MULTILINE)
_LISTED = re.compile(r"^(?:[^\n<]*<)?(\w[\w./-]+?)>?$", re.MULTILINE)  # a line of a toctree


def gather(folder: Path) -> None:
    """Copy the pages of ``pages/``, what they list, and all files that a page links to."""
    shutil.copytree(PAGES, folder)
    texts = "\n".join(path.read_text("utf-8") for path in folder.iterdir())
    waiting = [
        f"{name}{suffix}"
        for name in [*_LISTED.findall(texts), *_targets(texts, "")]
        for suffix in ("", ".md", ".ipynb")
    ]
    while waiting:
        path = waiting.pop()
        copy = folder / path
        if copy.exists() or path.startswith("..") or not (ROOT / path).is_file():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, copy)
        if copy.suffix in {".md", ".ipynb"}:
            waiting += _targets(copy.read_text("utf-8"), dirname(path))


def _targets(text: str, folder: str) -> list[str]:
    if text.startswith("{"):
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "markdown")
    found = ("".join(groups) for groups in _LINK.findall(text))
    return [normpath(join(folder, unquote(one))) for one in found if ":" not in one]
