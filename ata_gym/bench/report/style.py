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

from ata_gym.utils import colours
from ata_gym.utils.manifest import write_listed

OKABE_ITO = colours.OKABE_ITO

_DARK = ("#2F8FD8", "#F0743A", "#2BBE93", "#DD93BC", "#F2B632", "#9AD6FA", "#F2F2F2", "#D6C71E")
ON_DARK = dict(zip(OKABE_ITO, _DARK, strict=True))
"""The same eight on a dark page."""

_DASHES: tuple[Any, ...] = (
    "solid", (0, (7, 3)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)), (0, (3, 3)), (0, (7, 1)), (0, (1, 3)), (0, (9, 2, 1, 2)),
)  # fmt: skip
"""Dashes by which lines are told apart that lie on each other."""

_FIXED = {
    "ata": (0, 0), "ata-empirical": (1, 0), "ofta": (2, 0), "uta": (3, 0), "gta": (4, 0), "ata-empirical-icml": (5, 0),
    "ata-icml": (6, 0), "distribution-learner": (7, 0), "race": (1, 1), "dispatch": (2, 1), "restarting-beta": (5, 1),
    "learned": (3, 2), "lb-bsp-ema": (4, 1), "oracle": (0, 1), "dynamic-oracle": (6, 1), "dynamic-ofta": (2, 2),
}  # fmt: skip
"""The colour, and the turn of the dashes, of policies that have the same in every picture."""

_METHODS = {
    "rennala": (4, "o"), "ringmaster": (6, "^"), "ringmaster-stops": (6, "v"), "asgd": (7, "s"),
    "delay-adaptive-asgd": (7, "D"), "naive-optimal-asgd": (7, "P"), "ssp": (2, "p"), "r2sp": (2, "h"),
    "minibatch": (5, "X"), "m-synchronous": (5, "<"), "backup-workers": (5, ">"), "mindflayer": (3, "*"),
    "malenia": (1, "H"), "ringleader": (1, "d"),
}  # fmt: skip
"""A training method has a marker of its own, and the colour of its family; Rennala has that of GTA, its clock."""

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
    """The look of each line: well-known policies have their own, another one a colour by its name that is free.

    A training method (``"ringmaster"``, or ``"ringmaster=0.01"`` with a learning rate) is a thin line with markers.

    >>> lines(["mine", "ata"])["ata"]
    {'color': '#0072B2', 'linestyle': 'solid'}
    """
    looks = {name: _marked(*_METHODS[method]) for name in names if (method := name.partition("=")[0]) in _METHODS}
    kinds = [(place, turn) for turn in range(len(_DASHES)) for place in range(len(OKABE_ITO))]
    taken = {name: _FIXED[name] for name in names if name in _FIXED}
    for name in names:
        if name not in looks and name not in taken:
            seen, start = [place for place, _ in taken.values()], crc32(name.encode())
            free = [kind for kind in kinds if kind not in taken.values()] or kinds
            # its own colour, or the next one that is seldom in the picture
            rank = {kind: (seen.count(kind[0]), kind[1], (kind[0] - start) % len(OKABE_ITO)) for kind in free}
            taken[name] = min(rank, key=rank.__getitem__)
    for name, (place, turn) in taken.items():
        looks[name] = {"color": OKABE_ITO[place], "linestyle": _DASHES[(place + 3 * turn) % len(_DASHES)]}
    return {name: looks[name] for name in names}


def _marked(place: int, marker: str) -> dict[str, Any]:
    return {
        "color": OKABE_ITO[place], "linestyle": "solid", "linewidth": 1.0, "marker": marker, "markersize": 5.0,
        "markeredgecolor": "white", "markeredgewidth": 0.6, "markevery": 0.12,
    }  # fmt: skip


def plain_numbers(*panels: Axes) -> None:
    """Label all axes of panels with 20, 5k, 3M, 1G, also where they are logarithmic."""
    for axis in (axis for axes in panels for axis in (axes.xaxis, axes.yaxis)):
        axis.set_major_formatter(EngFormatter(sep=""))
        if axis.get_scale() == "log":
            low, high = sorted(axis.get_view_interval())
            narrow = high < (30 if axis.axis_name == "x" else 100) * low  # labels take less room one above the other
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
            axis.set_minor_formatter(NullFormatter())


def logarithmic(axis: Axis) -> None:
    """Give an axis of ratios a logarithmic scale, with the closer labels the less it spans."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 20 * low else (1.0, 2.0, 5.0)))
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
    """An empty figure in the house style, of a size in inches."""
    with mpl_style.context(_SETTINGS, after_reset=True):
        made = Picture(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(made)
        yield made


def save(made: Figure, stem: Path, title: str = "") -> list[Path]:
    """Write a figure, maybe with a title, as PNG and SVG, the same bytes each time; give the two paths."""
    if title:
        made.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")}
    with mpl_style.context(_SETTINGS, after_reset=True):
        made.draw_without_rendering()
        made.set_layout_engine("none")  # laid out once, for both
        for kind, path in paths.items():
            metadata = {"Date": None} if kind == "svg" else None
            write_listed(path, partial(made.savefig, format=kind, metadata=metadata))
    return list(paths.values())
