"""What Sphinx lacks for this site: formulas without a network, scripts as pages, stars in words."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.parsers import Parser
from sphinx.util.inspect import TypeAliasForwardRef

_CODE = re.compile(r"(``[^`]+``|:\w+:`[^`]+`|(?<!\S)\*[A-Z][\w ,]+\*)")
_MARK = re.compile(r"(\*(?!\*?\w+:)|(?<=\w)_(?!\w)|\|)")
_LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml"}


def escape(text: str) -> str:
    r"""Text in which stars, bars and underscores after a letter are no marks of reStructuredText.

    Code, references and examples stay as they are.

    Example:
        >>> escape("m* = 2 * x_{i}, ``a*b``")
        'm\\* = 2 \\* x\\_{i}, ``a*b``'
    """
    told = []
    for paragraph in re.split(r"(\n\s*\n)", text):
        parts = _CODE.split(paragraph)
        if not paragraph.lstrip().startswith((">>>", "* ")):
            parts[::2] = [_MARK.sub(r"\\\1", part) for part in parts[::2]]
        told += parts
    return "".join(told)


class Code(Parser):
    """A script as a page: its name, and the file as it is."""

    supported = ("code",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Add a title and the code; no list needs to name the page."""
        env = document.settings.env
        path = env.doc2path(env.docname, base=False)
        env.metadata[env.docname]["orphan"] = "true"
        section = nodes.section(ids=["code"])
        section += nodes.title("", "", nodes.literal("", str(path)))
        language = _LANGUAGES[path.suffix]
        section += nodes.literal_block(inputstring, inputstring, language=language)
        document += section


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def _docstring(app: Sphinx, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    lines[:] = escape("\n".join(lines)).split("\n")
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # or what stands before a colon would be taken for a type


def _skip(app: Sphinx, what: str, name: str, it: Any, skip: bool, options: Any) -> bool | None:
    """What another library adds to a class is not of this API."""
    module = getattr(it, "__module__", None)
    if inspect.isfunction(it) and not str(module).startswith(("ata_gym", "ata_policies")):
        return True
    return None


def _tidy(app: Sphinx, domain: str, kind: str, content: nodes.Element) -> None:
    """That a class has the base ``object`` is not worth a line; and dashes are dashes."""
    if content.children and content.children[0].astext() == "Bases: object":
        content.pop(0)
    for text in [*content.findall(nodes.Text)]:
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def _unlinked(app: Sphinx, config: Any) -> None:
    """Names of modules that are left out lead nowhere, without a warning."""
    config.nitpick_ignore_regex += [("py:.*", rf"{name}(\..*)?") for name in config.left_out]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add all of it to Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    for suffix in _LANGUAGES:
        app.add_source_suffix(suffix, "code")
    app.add_source_parser(Code)
    app.add_config_value("left_out", [], "env")
    app.connect("autodoc-process-docstring", _docstring, priority=400)  # before Google's form
    app.connect("config-inited", _unlinked)
    app.connect("object-description-transform", _tidy)
    TypeAliasForwardRef.__repr__ = lambda it: it.name  # or a union of aliases shows its class
    app.connect("autodoc-skip-member", _skip)
    app.add_css_file("site.css")
    app.add_js_file("sort.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
