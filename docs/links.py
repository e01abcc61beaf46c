"""Whether every link of the built pages leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names and what it refers to."""
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.add(value or "")
            elif name in {"href", "src"}:
                self.loaded.add(value or "")


def faults(texts: Mapping[str, str]) -> list[str]:
    """A sentence for each link that leads nowhere, and each thing that a page loads from another machine.

    ``texts`` are the built files by their paths. Links of ``<a>`` to other sites are left alone.

    >>> faults({"a.html": '<a href="b.html#x">', "b.html": '<p id="y"><script src="https://example.org/s.js">'})
    ['a.html: b.html#x leads nowhere', 'b.html: https://example.org/s.js is not part of the reference']
    """
    pages: dict[str, _Page] = {}
    for file, text in texts.items():
        if file.endswith(".html"):
            pages[file] = _Page()
            pages[file].feed(text)
    found = []
    for file, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            to = normpath(join(dirname(file), unquote(parts.path))) if parts.path else file
            anchor = unquote(parts.fragment)
            if not parts.scheme and (to not in texts or (anchor and anchor not in pages[to].anchors)):
                found.append(f"{file}: {link} leads nowhere")
        outside = sorted(one for one in page.loaded if not one.startswith("data:") and one not in texts)
        found += [f"{file}: {one} is not part of the reference" for one in outside]
    return found
