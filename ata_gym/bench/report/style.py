"""The colours, sizes and file formats of every picture of the project."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from ata_gym.envs.rendering import colours
from ata_gym.utils.files.manifest import write_listed

OKABE_ITO = colours.OKABE_ITO
"""Eight colours that colour-blind readers can tell apart (Okabe and Ito, 2008)."""

_DARK = ("#2F8FD8", "#F0743A", "#2BBE93", "#DD93BC", "#F2B632", "#9AD6FA", "#F2F2F2", "#D6C71E")
ON_DARK = dict(zip(OKABE_ITO, _DARK, strict=True))
"""The colour of ``OKABE_ITO`` that each becomes on a dark page."""

_DASHES: tuple[Any, ...] = (
    "solid",
    (0, (7, 3)),
    (0, (1, 1)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (3, 3)),
    (0, (7, 1)),
    (0, (1, 3)),
    (0, (9, 2, 1, 2)),
)
"""Dashes that tell apart lines that lie on each other: an offset, and lengths in line widths."""

_FIXED = {
    "ata": (0, 0),
    "ata-empirical": (1, 0),
    "ofta": (2, 0),
    "uta": (3, 0),
    "gta": (4, 0),
    "ata-empirical-icml": (5, 0),
    "ata-icml": (6, 0),
    "distribution-learner": (7, 0),
    "race": (1, 1),
    "dispatch": (2, 1),
    "restarting-beta": (5, 1),
    "learned": (3, 2),
    "lb-bsp-ema": (4, 1),
    "oracle": (0, 1),
    "dynamic-oracle": (6, 1),
    "dynamic-ofta": (2, 2),
}
"""Policies that look the same in every picture: the places of their colours, and their turns.

A turn is a further set of dashes for the same colours.
"""

_METHODS = {
    "rennala": (4, "o"),
    "rennala-mvr": (4, "."),
    "ringmaster": (6, "^"),
    "ringmaster-lmo": (6, "$L$"),
    "ringmaster-stops": (6, "v"),
    "asgd": (7, "s"),
    "delay-adaptive-asgd": (7, "D"),
    "naive-optimal-asgd": (7, "P"),
    "ssp": (2, "p"),
    "r2sp": (2, "h"),
    "minibatch": (5, "X"),
    "m-synchronous": (5, "<"),
    "backup-workers": (5, ">"),
    "mindflayer": (3, "*"),
    "malenia": (1, "H"),
    "ringleader": (1, "d"),
    "rescaled-asgd": (1, "8"),
    "local-sgd": (0, "x"),
    "loscar-sgd": (0, "+"),
}
"""The place of the colour, and the marker, of each training method.

A method has the colour of its family and a marker of its own. Rennala has the colour of GTA, whose
clock it has.
"""

_SETTINGS: dict[str, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "svg.hashsalt": "ata-gym",  # the same ids each time
    "svg.fonttype": "path",
}


def lines(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the look of each line, as arguments of matplotlib's ``plot``.

    Well-known policies have a look of their own; another one gets a free colour that depends on its
    name. A training method (``"ringmaster"``, or ``"ringmaster=0.01"`` with a learning rate) is a
    thin line with markers.

    Args:
        names: The names of policies or methods, in the order of the picture.

    Example:
        >>> lines(["mine", "ata"])["ata"]
        {'color': '#0072B2', 'linestyle': 'solid'}
    """
    looks = {
        name: _marked(*_METHODS[method])
        for name in names
        if (method := name.partition("=")[0]) in _METHODS
    }
    # All pairs of a colour and a turn; the first ones have the turn 0.
    kinds = [(place, turn) for turn in range(len(_DASHES)) for place in range(len(OKABE_ITO))]
    assigned = {name: _FIXED[name] for name in names if name in _FIXED}
    for name in names:
        if name not in looks and name not in assigned:
            used_places = [place for place, _ in assigned.values()]
            # A checksum, since Python's own hash of a text differs from process to process.
            start = crc32(name.encode())
            free = [kind for kind in kinds if kind not in assigned.values()] or kinds
            # First a colour that is seldom in the picture, then a low turn, and of these the colour
            # of the name or the next one.
            rank = {
                kind: (used_places.count(kind[0]), kind[1], (kind[0] - start) % len(OKABE_ITO))
                for kind in free
            }
            assigned[name] = min(rank, key=rank.__getitem__)
    for name, (place, turn) in assigned.items():
        looks[name] = {
            "color": OKABE_ITO[place],
            "linestyle": _DASHES[(place + 3 * turn) % len(_DASHES)],
        }
    return {name: looks[name] for name in names}


def _marked(place: int, marker: str) -> dict[str, Any]:
    """Return the look of a thin line with markers."""
    return {
        "color": OKABE_ITO[place],
        "linestyle": "solid",
        "linewidth": 1.0,
        "marker": marker,
        "markersize": 5.0,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "markevery": 0.12,
    }


def plain_numbers(*panels: Axes) -> None:
    """Label all axes of panels with 20, 5k, 3M, 1G, also where they are logarithmic."""
    for axis in (axis for axes in panels for axis in (axes.xaxis, axes.yaxis)):
        axis.set_major_formatter(EngFormatter(sep=""))
        if axis.get_scale() == "log":
            low, high = sorted(axis.get_view_interval())
            # A vertical axis has room for more labels than a horizontal one.
            if axis.axis_name == "x":
                span = 30
            else:
                span = 100
            if high < span * low:
                subs: tuple[float, ...] = (1.0, 2.0, 5.0)
            else:
                subs = (1.0,)
            axis.set_major_locator(LogLocator(subs=subs))
            axis.set_minor_formatter(NullFormatter())


def logarithmic(axis: Axis) -> None:
    """Give an axis of ratios a logarithmic scale, with more labels where it spans less."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    low, high = axis.get_view_interval()
    if high < 20 * low:
        subs: tuple[float, ...] = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)
    else:
        subs = (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


class Picture(Figure):
    """A figure that a notebook shows, also where nothing has prepared it for pictures."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with mpl_style.context(_SETTINGS, after_reset=True):
            self.savefig(content, format="png")
        return content.getvalue()


@contextmanager
def figure(width: float, height: float) -> Iterator[Picture]:
    """Make an empty figure in the style of the project, of a size in inches."""
    with mpl_style.context(_SETTINGS, after_reset=True):
        picture = Picture(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(picture)
        yield picture


def head(picture: Figure, heading: str) -> None:
    """Write a line above all panels of a picture, in place of an earlier one."""
    picture.suptitle(heading, x=0.01, ha="left", fontsize=10, fontweight="bold")


def save(picture: Figure, stem: Path, title: str = "") -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes each time.

    Args:
        picture: The figure.
        stem: The path of the files, without its ending.
        title: A line above the figure, if not empty.

    Returns:
        The paths of the two files.
    """
    if title:
        head(picture, title)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")}
    with mpl_style.context(_SETTINGS, after_reset=True):
        picture.draw_without_rendering()
        picture.set_layout_engine("none")  # laid out once, for both
        for kind, path in paths.items():
            # An SVG file would otherwise hold the date.
            if kind == "svg":
                metadata = {"Date": None}
            else:
                metadata = None
            write_listed(path, partial(picture.savefig, format=kind, metadata=metadata))
    return list(paths.values())
