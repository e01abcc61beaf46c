"""The index that the search box of the site reads: names, and a first sentence for each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pdoc.doc
import pdoc.render
import pdoc.search

MOST = 2_000_000  # bytes: a phone loads it
_SENTENCE = re.compile(r"^.*?[.:](?=\s|<|$)", re.DOTALL)


def index(
    modules: Mapping[str, pdoc.doc.Module],
    is_public: Callable[[Any], str],
    pages: Iterable[tuple[str, str, str]],
) -> str:
    """The script with all public names of modules, and file, title and text of ``pages``.

    Raises:
        ValueError: If it is longer than 2 MB. It is not compiled beforehand, which would make it
            several times as long.
    """
    found = pdoc.search.make_index(modules, lambda one: bool(is_public(one).strip()), "numpy")
    documents = [_short(one) for one in found if "Alias for field number" not in one.get("doc", "")]
    for file, title, text in pages:
        name = file.removesuffix(".html")
        told = {
            "fullname": title,
            "modulename": name,
            "qualname": "",
            "kind": "page",
            "doc": _first(text),
        }
        # a field that counts more than the text, and is not shown
        documents.append(
            told | {"bases": title},
        )
    text = pdoc.render.env.get_template("search.js.jinja2").render(
        search_index=json.dumps(documents),
    )
    if len(text) > MOST:
        raise ValueError(
            f"the search index has {len(text):,} bytes, more than {MOST:,}: index less of each"
            " name",
        )
    return text


def _short(document: dict[str, str]) -> dict[str, str]:
    kept = {
        name: document[name]
        for name in ("fullname", "modulename", "qualname", "kind", "funcdef")
        if name in document
    }
    return {
        **kept,
        "doc": _first(document.get("doc", "")),
        **({"signature": ""} if "signature" in document else {}),
    }


def _first(text: str) -> str:
    plain = " ".join(re.sub(r"<[^>]+>", "", text.partition("</p>")[0]).split())
    sentence = _SENTENCE.match(plain)
    return (sentence[0] if sentence else plain)[:300]
