"""A page as one HTML file: the template, the style and the scripts of ``assets`` in one.

The script of plotly is its published bundle of cartesian charts, of the version that its first
lines name. It is compressed, which makes a page less than half as large; the browser unpacks it.
"""

import base64
import hashlib
import math
import shlex
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ata_gym.bench.report import style
from ata_gym.bench.report.page.citation import bibtex
from ata_gym.bench.report.page.docstrings import blocks, pieces, terms
from ata_gym.bench.report.page.sections import Chart, Page, paragraphs
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import write_whole

NAME = "report.html"
"""The name of the page in a results folder."""

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("plots.js", "page.js")

_DIGITS = 5  # significant digits of the numbers in pictures


def write(page: Page, path: Path) -> Path:
    """Write a page, whole or not at all, with the same bytes each time.

    Returns:
        The path.

    Raises:
        MissingExtraError: If Jinja2 or PyYAML is missing.
    """
    text = render(page)
    write_whole(path, lambda part: part.write_text(text, "utf-8", newline="\n"))
    return path


def render(page: Page) -> str:
    """Return the HTML of a page.

    The template escapes all texts. What scripts read is JSON in which nothing can end an element.
    The content security policy allows the scripts of this file by their hashes, and no request to
    any address.

    Raises:
        MissingExtraError: If Jinja2 or PyYAML is missing.
    """
    jinja: Any = require("jinja2", extra="bench", purpose="The report page")
    markup: Any = require("markupsafe", extra="bench", purpose="The report page").Markup
    environment = jinja.Environment(
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja.FileSystemLoader(_ASSETS),
    )
    environment.filters |= {
        "blocks": blocks,
        "terms": terms,
        "pieces": pieces,
        "dict": dict,
        "compact": compact,
        "paragraphs": paragraphs,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    scripts = [_asset(name) for name in _SCRIPTS]
    plotly_hash, plotly = _plotly()
    script_hashes = " ".join([*map(_hash, scripts), plotly_hash])
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:;"
        f" script-src {script_hashes}"
    )
    inlined = {
        "style": markup(_asset("page.css")),
        "scripts": [markup(script) for script in scripts],
        "plotly": plotly,
    }
    page_data = {
        "config": config(page),
        "looks": looks(page),
        "choices": choices(page),
        "citation": bibtex(),
    }
    template = environment.get_template("page.html")
    command = shlex.join(page.command)
    return str(
        template.render(
            page=page, policy=policy, icon=_icon(), command=command, **inlined, **page_data
        ),
    )


def config(page: Page) -> dict[str, Any]:
    """Return what the scripts read when the page opens, as plain data."""
    charts = {
        chart.id: {
            "kind": chart.kind,
            "views": [dict(view.choice) for view in chart.views],
            **chart.settings,
        }
        for chart in page.sections
        if isinstance(chart, Chart)
    }
    return {"looks": looks(page), "charts": charts}


def looks(page: Page) -> list[dict[str, str]]:
    """Return the name, kind, colours and dashes of each line, as in all pictures."""
    line_looks = style.lines([line.name for line in page.series])
    page_looks = []
    for name, kind in page.series:
        colour = line_looks[name]["color"]
        dashes = line_looks[name]["linestyle"]
        # The lengths of dashes are in widths of the line, which is 2 pixels wide.
        if dashes == "solid":
            dash = "solid"
        else:
            dash = ",".join(f"{2 * length:g}px" for length in dashes[1])
        on_dark = style.ON_DARK[colour]
        page_looks.append(
            {"name": name, "kind": kind, "light": colour, "dark": on_dark, "dash": dash},
        )
    return page_looks


def choices(page: Page) -> dict[str, dict[str, list[str]]]:
    """Return what may be chosen in each section: the names of the choices, with their options."""
    result: dict[str, dict[str, list[str]]] = {}
    for section in page.sections:
        # The options are the keys of a dict, which keeps their order.
        options: dict[str, dict[str, None]] = {}
        for view in section.views:
            for name, option in view.choice.items():
                options.setdefault(name, {})[option] = None
        result[section.id] = {
            name: list(values) for name, values in options.items() if len(values) > 1
        }
    return result


def compact(value: Any) -> Any:
    """Return plain data with ``_DIGITS`` significant digits.

    Arrays become lists, and numbers that are not finite become None.

    Example:
        >>> compact({"mean": np.array([1.2345678, np.nan]), "round": 123456789})
        {'mean': [1.2346, None], 'round': 123456789}
    """
    if isinstance(value, np.ndarray | np.generic):
        return compact(value.tolist())
    if isinstance(value, Mapping):
        return {name: compact(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [compact(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{_DIGITS}g}")
        # A whole number takes less room without its decimals; above 1e15 the exponent is shorter.
        if short.is_integer() and abs(short) < 1e15:
            return int(short)
        return short
    return value


@cache
def _asset(name: str) -> str:
    """Read a text file of ``assets``."""
    return (_ASSETS / name).read_text("utf-8")


@cache
def _plotly() -> tuple[str, str]:
    """Return the hash of the script of plotly, and the script, compressed and in base 64."""
    script = _asset("plotly-cartesian.min.js")
    return _hash(script), base64.b64encode(zlib.compress(script.encode(), 9)).decode("ascii")


def _hash(script: str) -> str:
    """Return the hash of a script, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _icon() -> str:
    """Return the icon of the page, three bars, as the address of an SVG picture."""
    bars = "".join(
        f'<rect x="{x}" y="{16 - h}" width="3" height="{h}" rx="1" fill="{colour}"/>'
        for x, h, colour in zip((1, 6, 11), (7, 15, 11), style.OKABE_ITO, strict=False)
    )
    return "data:image/svg+xml," + quote(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{bars}</svg>',
    )
