"""The check that every link of the site leads somewhere, and all is loaded from here."""

from collections.abc import Collection, Mapping
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit


class _Links(HTMLParser):
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


def faults(texts: Mapping[str, str], others: Collection[str] = ()) -> list[str]:
    """A sentence for each link that leads nowhere, and each thing loaded from elsewhere.

    ``texts`` are the built files by their paths, and ``others`` the paths of files that are no
    text. Links of ``<a>`` to other sites are left alone.

    Example:
        >>> top = '<a href="a/b.html#x"><a href="#top"><link href="https://example.org/a.css">'
        >>> below = '<p id="x"><a href="../index.html"><a href="c.html"><img src="p.png">'
        >>> faults({"index.html": top, "a/b.html": below})
        ... # doctest: +NORMALIZE_WHITESPACE
        ['index.html: #top leads nowhere',
         'index.html: https://example.org/a.css is not part of the reference',
         'a/b.html: c.html leads nowhere',
         'a/b.html: p.png is not part of the reference']
    """
    parsed: dict[str, _Links] = {}
    for file, text in texts.items():
        if file.endswith(".html"):
            parsed[file] = _Links()
            parsed[file].feed(text)
    found = []
    for file, links in parsed.items():
        for target in sorted(links.links):
            parts = urlsplit(target)
            if parts.path:
                to = normpath(join(dirname(file), unquote(parts.path)))
            else:
                to = file
            anchor = unquote(parts.fragment)
            if not parts.scheme and (
                to not in texts or (anchor and anchor not in parsed[to].anchors)
            ):
                found.append(f"{file}: {target} leads nowhere")
        outside = sorted(
            one
            for one in links.loaded
            if not one.startswith("data:") and one not in {*texts, *others}
        )
        found += [f"{file}: {one} is not part of the reference" for one in outside]
    return found
