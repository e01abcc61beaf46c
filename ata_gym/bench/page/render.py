"""A page as one HTML file: the template, the style and the scripts of ``assets``, all inlined.

That of plotly, of the version that its first lines name, is its published bundle of cartesian charts. It is compressed,
which makes a page less than half as large; the browser unpacks it.
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

from ata_gym.bench.page.docstrings import blocks, pieces, terms
from ata_gym.bench.page.sections import Chart, Page
from ata_gym.bench.report import style
from ata_gym.utils.atomic import write_whole
from ata_gym.utils.citation import bibtex
from ata_gym.utils.extras import require

NAME = "report.html"  # the name of the page in a results folder

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("plots.js", "page.js")

_DIGITS = 5  # significant digits of the numbers in pictures


def write(page: Page, path: Path) -> Path:
    """Write a page, whole or not at all; the same bytes each time. MissingExtraError without Jinja2 or PyYAML."""
    text = render(page)
    write_whole(path, lambda part: part.write_text(text, "utf-8", newline="\n"))
    return path


def render(page: Page) -> str:
    """The HTML of a page.

    Texts are escaped by the template; those that scripts read stand as JSON in which nothing ends an element. The
    content security policy allows the scripts of this file by their hashes, and no request to any place.
    """
    jinja: Any = require("jinja2", extra="bench", purpose="The report page")
    markup: Any = require("markupsafe", extra="bench", purpose="The report page").Markup
    environment = jinja.Environment(
        autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja.FileSystemLoader(_ASSETS),
    )  # fmt: skip
    environment.filters |= {"blocks": blocks, "terms": terms, "pieces": pieces, "dict": dict, "compact": compact}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    scripts, (hashed, plotly) = [_asset(name) for name in _SCRIPTS], _plotly()
    allowed = " ".join([*map(_hash, scripts), hashed])
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}"
    inlined = {"style": markup(_asset("page.css")), "scripts": [*map(markup, scripts)], "plotly": plotly}
    told = {"config": config(page), "players": looks(page), "choices": choices(page), "citation": bibtex()}
    template, command = environment.get_template("page.html"), shlex.join(page.command)
    return str(template.render(page=page, policy=policy, icon=_icon(), command=command, **inlined, **told))


def config(page: Page) -> dict[str, Any]:
    """What the scripts need to know from the beginning."""
    charts = {
        chart.id: {"kind": chart.kind, "views": [dict(view.choice) for view in chart.views], **chart.settings}
        for chart in page.sections
        if isinstance(chart, Chart)
    }
    return {"players": looks(page), "charts": charts}


def looks(page: Page) -> list[dict[str, str]]:
    """The name, kind, colours and dashes of each player, as in all pictures of the project."""
    drawn, found = style.lines([player.name for player in page.players]), []
    for name, kind in page.players:
        colour, dashes = drawn[name]["color"], drawn[name]["linestyle"]
        dash = "solid" if dashes == "solid" else ",".join(f"{2 * length:g}px" for length in dashes[1])  # of the width
        found.append({"name": name, "kind": kind, "light": colour, "dark": style.ON_DARK[colour], "dash": dash})
    return found


def choices(page: Page) -> dict[str, dict[str, list[str]]]:
    """For each section, what may be chosen in it: the names of the choices, and their options."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in page.sections:
        options: dict[str, dict[str, None]] = {}
        for view in section.views:
            for name, option in view.choice.items():
                options.setdefault(name, {})[option] = None
        found[section.id] = {name: list(values) for name, values in options.items() if len(values) > 1}
    return found


def compact(value: Any) -> Any:
    """Plain data with ``_DIGITS`` significant digits; None for numbers that are not finite.

    >>> compact({"mean": np.array([1.2345678, np.nan]), "round": 123456789})
    {'mean': [1.2346, None], 'round': 123456789}
    """
    if isinstance(value, np.ndarray | np.generic):
        return compact(value.tolist())
    if isinstance(value, Mapping):
        return {name: compact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [compact(one) for one in value]
    if isinstance(value, float):
        short = float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
        return int(short) if short is not None and short.is_integer() and abs(short) < 1e15 else short
    return value


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


@cache
def _plotly() -> tuple[str, str]:
    script = _asset("plotly-cartesian.min.js")
    return _hash(script), base64.b64encode(zlib.compress(script.encode(), 9)).decode("ascii")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _icon() -> str:
    bars = "".join(
        f'<rect x="{x}" y="{16 - h}" width="3" height="{h}" rx="1" fill="{colour}"/>'
        for x, h, colour in zip((1, 6, 11), (7, 15, 11), style.OKABE_ITO, strict=False)
    )
    return "data:image/svg+xml," + quote(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{bars}</svg>')
