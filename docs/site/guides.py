"""Guides and notebooks as pages of the site, with links between the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from html import escape, unescape
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import latex2mathml.converter
import markdown2
import nbconvert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename

ROOT = Path(__file__).parents[2]
GROUPS = {
    "Start": {
        "docs/guide/install.md": (
            "from a clone or with pip, what each extra is for, and what takes how long"
        ),
        "README.md": (
            "what it is, a snippet for each kind of user, and the published numbers beside ours"
        ),
    },
    "Guides": {
        "docs/guide/theory.md": (
            "round time and worker time, ATA's bounds and its theorem, what each default minimises"
        ),
        "docs/guide/formats.md": (
            "which logs `what-if` reads, what is not in them, and what to record instead of others"
        ),
        "docs/guide/other-policies.md": (
            "which part of an answer of `what-if` rests on the log, and doubly robust estimates"
        ),
        "docs/guide/what-is-new.md": (
            "the training methods of 2026: what their sources claim, and what was measured"
        ),
        "policies/README.md": (
            "every policy in one table, how to compose one, and how to write your own"
        ),
        "notebooks/agents/README.md": "an env for twelve RL libraries, with a script for each",
        "notebooks/cluster/README.md": (
            "`what-if` on a log that you have, then torchrun, Ray and other trainers"
        ),
        "docs/guide/flower.md": (
            "federated clients of unequal speed in Flower, and the weights that unequal steps need"
        ),
        "notebooks/results.md": (
            "what a results folder promises: kills, damaged files, changed code"
        ),
        "notebooks/README.md": "the notebooks, and a command for each figure of the paper",
    },
    "Measured": {
        "policies/leaderboard.md": (
            "who costs least, on which workers, at which price of worker time"
        ),
        "policies/changing.md": "who follows workers that change",
        "policies/learned.md": "the card of the trained network: where it wins, and where it loses",
        "policies/ablation.md": "what each constant of the default is worth",
        "tests/benchmarks/README.md": "how fast the code is",
        "tests/gpu/README.md": "what is tested on GPUs, and what came of it",
    },
    "Project": {
        "CHANGELOG.md": "what changed in which version",
        "docs/guide/stability.md": "what of names, states and results folders survives a version",
        "CONTRIBUTING.md": "how to work on ata-gym",
        "SECURITY.md": "how to report a weakness, and which files are trusted",
        "docs/guide/release.md": "how a release is made",
    },
}
"""The Markdown that is shown, by chapter, each with what it says, in Markdown."""

_CODE = "pdoc-code codehilite"  # the classes of code that pdoc's style knows
_EXTRAS = {
    "fenced-code-blocks": {"cssclass": _CODE},
    "tables": None,
    "cuddled-lists": None,
    "code-friendly": None,
}
_HEADING = re.compile(r"<h([1-6])[^>]*>(.*?)</h\1>", re.DOTALL)
_LINK = re.compile(r'<a ([^>]*?)href="([^"]*)"([^>]*)>(.*?)</a>', re.DOTALL)
_IMAGE = re.compile(r'<img ([^>]*?)src="([^"]*)"')
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", re.DOTALL)


class Guide(NamedTuple):
    """A page that is made of a file of the repository."""

    source: str
    """The path of that file."""
    title: str
    about: str
    """What it says: of a notebook its question."""
    body: str
    """HTML."""

    @property
    def file(self) -> str:
        """The name of the page."""
        return page_of(self.source)

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The anchor and the text of each heading of the second level."""
        return [
            (slug(text), _plain(text))
            for level, text in _HEADING.findall(self.body)
            if level == "2"
        ]


def page_of(source: str) -> str:
    """The name of the page that a file of the repository becomes; pages lie side by side.

    Example:
        >>> pages = ("notebooks/cluster/README.md", "notebooks/cluster.ipynb", "docs/gpu.py")
        >>> tuple(page_of(page) for page in pages)
        ('guide-notebooks-cluster.html', 'notebook-cluster.html', 'guide-docs-gpu-py.html')
    """
    if source.endswith(".ipynb"):
        return f"notebook-{Path(source).stem}.html"
    stem = source.removesuffix(".md").removesuffix("/README")
    return f"guide-{re.sub(r'[/._]', '-', stem).lower()}.html"


def slug(heading: str) -> str:
    """The anchor of a heading, as forges make it.

    Example:
        >>> slug("Published <code>against</code> measured: n, B")
        'published-against-measured-n-b'
    """
    return re.sub(r"[^\w\- ]", "", _plain(heading).lower()).strip().replace(" ", "-")


def notebooks() -> list[str]:
    """The paths of all notebooks, in the order of their list."""
    listed = re.findall(
        r"^\| \[([\w-]+\.ipynb)\]",
        (ROOT / "notebooks/README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    return [f"notebooks/{name}" for name in listed]


def every(sources: list[str]) -> tuple[list[Guide], dict[str, bytes]]:
    """The pages of some files and of files they link to, and their pictures by name."""
    made = dict[str, Guide]()
    pictures = dict[str, bytes]()
    waiting = list(sources)
    while waiting:
        source = waiting.pop(0)
        if source not in made:
            body = _body(ROOT / source)
            targets = [
                normpath(join(dirname(source), unquote(urlsplit(one[1]).path)))
                for one in _LINK.findall(body)
            ]
            waiting += [target for target in targets if _is_text(target)]
            body = _HEADING.sub(lambda m: f'<h{m[1]} id="{slug(m[2])}">{m[2]}</h{m[1]}>', body)
            body = _LINK.sub(partial(_link, folder=dirname(source)), body)
            for name, place in _pictures(body, dirname(source)):
                pictures[name] = place.read_bytes()
            body = _IMAGE.sub(lambda m: f'<img {m[1]}src="{_shown_as(m[2])}"', body)
            made[source] = _guide(source, body)
    return list(made.values()), pictures


def _guide(source: str, body: str) -> Guide:
    heading, question = (
        re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", body, re.DOTALL) for tag in ("h1", "strong")
    )
    about = next((listed[source] for listed in GROUPS.values() if source in listed), "")
    if source.endswith(".ipynb") and question:
        about = _plain(question[1])
    title = source
    if source == "README.md":
        title = "Overview"
    elif heading:
        title = _plain(heading[1])
    return Guide(source, title, about, body)


def _body(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        exporter = nbconvert.HTMLExporter(
            template_name="basic",
            exclude_input_prompt=True,
            exclude_output_prompt=True,
        )
        exporter.exclude_anchor_links = True
        return re.sub(
            r'class="\s*highlight[^"]*"',
            f'class="{_CODE}"',
            str(exporter.from_filename(str(path))[0]),
        )
    if path.suffix != ".md":
        code = highlight(text, get_lexer_for_filename(path.name), HtmlFormatter(cssclass=_CODE))
        return f"<h1><code>{escape(path.relative_to(ROOT).as_posix())}</code></h1>{code}"
    text = re.sub(r"<!--.*?-->\n", "", text)
    if path.name == "theory.md":
        text = _FORMULA.sub(_formula, text)
    return f'<div class="text">{markdown2.markdown(text, extras=_EXTRAS)}</div>'


def _formula(match: re.Match[str]) -> str:
    if match[1]:
        display = "block"
    else:
        display = "inline"
    made = str(latex2mathml.converter.convert(match[1] or match[2], display=display)).replace(
        "\n",
        "",
    )
    # a line that begins with a formula begins no block
    if match[1]:
        return made
    return f"<span>{made}</span>"


def _is_text(target: str) -> bool:  # whether a link leads to a file that can be a page
    path = ROOT / target
    return (
        path.is_file()
        and path.suffix in {".md", ".ipynb", ".py", ".sh", ".yaml"}
        and not target.startswith("..")
    )


def _link(match: re.Match[str], folder: str) -> str:
    parts = urlsplit(unescape(match[2]))
    if parts.scheme or not parts.path:
        return match[0]
    target = normpath(join(folder, unquote(parts.path)))
    if not _is_text(target):
        return match[4]  # a folder, or a file that is no text, has no page
    if parts.fragment:
        anchor = f"#{parts.fragment}"
    else:
        anchor = ""
    return f'<a href="{page_of(target)}{anchor}">{match[4]}</a>'


def _pictures(body: str, folder: str) -> Iterator[tuple[str, Path]]:
    for _, source in _IMAGE.findall(body):
        if not urlsplit(source).scheme:
            yield _shown_as(source), ROOT / normpath(join(folder, unquote(source)))


def _shown_as(source: str) -> str:
    if urlsplit(source).scheme:
        return source
    return f"picture-{basename(source)}"


def _plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).replace("¶", "").split())
