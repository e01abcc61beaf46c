"""The configuration of Sphinx, and the little that it lacks: formulas that need no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx

import ata_gym

project = "ata-gym"
author = "The ata-gym authors"
version = release = ata_gym.__version__
copyright = f"{author}, version {release}"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
]
templates_path = [str(Path(__file__).parent / "templates")]
exclude_patterns = ["**/.ipynb_checkpoints"]
default_role = "literal"  # what a docstring has in single backticks is code
highlight_language = "none"
toc_object_entries_show_parents = "hide"
smartquotes = False  # -- begins an option

autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False

myst_enable_extensions = ["dollarmath", "colon_fence", "html_image", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_allow_digits = False
nb_execution_mode = "off"  # a notebook is shown with the output that it holds
nb_merge_streams = True
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"ata-gym {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"notebooks/agents/README": []}  # no page stands below it
html_theme_options = {
    "logo": {"text": "ata-gym"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


def _docstring(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """A field of a named tuple has the words that stand under it, or none."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # or what stands before a colon would be taken for a type


_ARRAY = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]")
_ALIASES = {
    "float64": "Floats",
    "float32": "Floats32",
    "int64": "Ints",
    "int32": "Ints32",
    "int8": "Bits",
    "bool": "Mask",
    "uint64": "Keys",
}


def _tidy(app: Sphinx, document: nodes.document) -> None:
    """An array in a signature has the name that the source gives its type; dashes are dashes."""
    links = document.findall(addnodes.pending_xref)
    for link in [link for link in links if link["reftarget"] == "numpy.ndarray"]:
        siblings = link.parent.children
        start = siblings.index(link)
        for end in range(start, len(siblings)):
            text = "".join(node.astext() for node in siblings[start : end + 1])
            if array := _ARRAY.fullmatch(text):
                name = _ALIASES.get(array[1], f"NDArray[{array[1]}]")
                link["reftarget"] = f"ata_gym.typing.{name}"
                link[0] = nodes.Text(name)
                del siblings[start + 1 : end + 1]
                break
    for text in [*document.findall(nodes.Text)]:
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def setup(app: Sphinx) -> dict[str, bool]:
    """Add them to Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("autodoc-process-docstring", _docstring, priority=400)  # before napoleon
    app.connect("doctree-read", _tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
