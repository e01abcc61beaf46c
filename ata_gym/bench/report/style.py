"""The colours, sizes and file formats of every picture of the project."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import style as mpl_style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from ata_gym.envs.rendering import colours
from ata_gym.utils.files.manifest import write_listed

OKABE_ITO = colours.OKABE_ITO
"""Eight colours that colour-blind readers tell apart, as all pictures of the project have them."""

_DARK = ("#2F8FD8", "#F0743A", "#2BBE93", "#C968A8", "#F2B632", "#9AD6FA", "#F2F2F2", "#B04C70")
ON_DARK = dict(zip(OKABE_ITO, _DARK, strict=True))
"""What each colour of ``OKABE_ITO`` becomes on a dark page, as well told apart."""

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

_PREFERRED = {
    "ata": 0,
    "ata-empirical": 1,
    "ofta": 2,
    "uta": 3,
    "gta": 4,
    "ata-empirical-icml": 5,
    "ata-icml": 6,
    "distribution-learner": 7,
    "race": 1,
    "dispatch": 2,
    "restarting-beta": 5,
    "learned": 3,
    "lb-bsp-ema": 4,
    "oracle": 0,
    "dynamic-oracle": 6,
    "dynamic-ofta": 2,
}
"""The place of the colour that a well-known policy has where no earlier one of these has it."""

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
"""The place of the colour that a training method has where it is free, and its marker.

Methods of a family prefer one colour; the marker is the method's own.
"""

BOUND: dict[str, Any] = {"color": "#404040", "linewidth": 1.0, "linestyle": (0, (5, 3))}
"""The look of the thin line of a bound."""

_MARKED: dict[str, Any] = {
    "linewidth": 1.0,
    "markersize": 5.0,
    "markeredgecolor": "white",
    "markeredgewidth": 0.6,
    "markevery": 0.12,
}
"""The look of the thin line with markers of a training method."""

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

_PAPER: dict[str, Any] = {
    **_SETTINGS,
    "font.family": "STIXGeneral",  # like Times, and a part of matplotlib
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # TrueType, which journals ask for
}
"""What differs in a picture for a paper: it is printed in the size in which it is drawn."""

COLUMN = 3.25
"""The width of a column of a paper in inches, as in the style of ICML."""
TWO_COLUMNS = 6.75
"""The width of both columns of a paper in inches."""
_ONE_PANEL = 8.0
"""Pictures of less than this width in inches have one panel in a row."""
_LEGEND_ROOM = 0.5
"""How much higher a picture for a paper is, in inches, since its legend stands below it."""

_in_paper: ContextVar[bool] = ContextVar("in_paper", default=False)


def lines(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the look of each line, as arguments of matplotlib's ``plot``.

    No two lines have one colour while one of ``OKABE_ITO`` is free, and no two have one colour and
    the same dashes while dashes are left. Well-known policies choose their colour first, then
    other policies, then training methods (``"ringmaster"``, or ``"ringmaster=0.01"`` with a
    learning rate), which are thin lines with markers. The order of the names makes no difference:
    all pictures of a report that give the same names have the same looks.

    Args:
        names: The names of all policies and methods of a report.

    Example:
        >>> lines(["mine", "ata"])["ata"]
        {'color': '#0072B2', 'linestyle': 'solid'}
    """
    looks = {}
    uses = [0] * len(OKABE_ITO)
    for name in sorted({*names}, key=_precedence):
        preferred = _preferred_place(name)
        # A colour with the fewest uses: the preferred one, or the next one after it.
        distances = [(place - preferred) % len(OKABE_ITO) for place in range(len(OKABE_ITO))]
        _, _, place = min(zip(uses, distances, range(len(OKABE_ITO)), strict=True))
        looks[name] = {
            "color": OKABE_ITO[place],
            "linestyle": _DASHES[(place + 3 * uses[place]) % len(_DASHES)],
        }
        if _method(name) in _METHODS:
            looks[name] |= {**_MARKED, "marker": _METHODS[_method(name)][1]}
        uses[place] += 1
    return {name: looks[name] for name in names}


def _method(name: str) -> str:
    """Return the name of a training method without its learning rate."""
    return name.partition("=")[0]


def _precedence(name: str) -> tuple[int, int, str]:
    """Return by what the lines of a report are sorted, to choose their colours in turn."""
    if name in _PREFERRED:
        return 0, [*_PREFERRED].index(name), name
    return int(_method(name) in _METHODS) + 1, 0, name


def _preferred_place(name: str) -> int:
    """Return the place of the colour that a line has where it is free."""
    if name in _PREFERRED:
        return _PREFERRED[name]
    if _method(name) in _METHODS:
        return _METHODS[_method(name)][0]
    # A checksum, since Python's own hash of a text differs from process to process.
    return crc32(name.encode()) % len(OKABE_ITO)


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
    """A figure that is saved in the style in which it was drawn, also by a notebook."""

    settings: Mapping[str, Any] = _SETTINGS
    """The style, as settings of matplotlib."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """Save the figure, as matplotlib's method does."""
        with mpl_style.context(dict(self.settings), after_reset=True):
            super().savefig(*args, **options)

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


@contextmanager
def for_paper() -> Iterator[None]:
    """Draw pictures for a paper: in the width of a column, or of two where panels need it.

    Their letters have the size of captions, and their legends stand below them.
    """
    token = _in_paper.set(True)
    try:
        yield
    finally:
        _in_paper.reset(token)


def in_paper() -> bool:
    """Return whether pictures are drawn for a paper."""
    return _in_paper.get()


@contextmanager
def figure(width: float, height: float) -> Iterator[Picture]:
    """Make an empty figure in the style of the project.

    Args:
        width: The width in inches; ``for_paper`` chooses another one.
        height: The height in inches.
    """
    settings = _SETTINGS
    size = (width, height)
    if in_paper():
        settings = _PAPER
        column = COLUMN if width < _ONE_PANEL else TWO_COLUMNS
        size = (column, height * column / width + _LEGEND_ROOM)
    with mpl_style.context(settings, after_reset=True):
        picture = Picture(figsize=size, layout="constrained")
        picture.settings = settings
        FigureCanvasAgg(picture)
        yield picture


def legend(picture: Figure, handles: Sequence[Artist]) -> None:
    """Add a legend to a picture: at its right, and below it in a paper.

    Args:
        picture: The picture.
        handles: What the legend names, in this order.
    """
    if in_paper():
        longest = max(len(str(handle.get_label())) for handle in handles)
        # A letter is about 0.05 inches wide, and a line with its distances half an inch.
        columns = int(picture.get_figwidth() / (0.5 + 0.05 * longest))
        columns = max(1, min(columns, len(handles)))
        picture.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.6)
    else:
        # Many entries are smaller, so that all of them have room.
        size = min(10.0, 44.0 * picture.get_figheight() / max(len(handles), 1))
        picture.legend(handles=handles, loc="outside right upper", handlelength=2.6, fontsize=size)


def head(picture: Figure, heading: str) -> None:
    """Write a line above all panels of a picture, in place of an earlier one.

    A picture for a paper has none, since its caption says what it is.
    """
    if in_paper():
        return
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
        # It is laid out once, so that both files are alike.
        picture.set_layout_engine("none")
        for kind, path in paths.items():
            # An SVG file would otherwise hold the date.
            if kind == "svg":
                metadata = {"Date": None}
            else:
                metadata = None
            write_listed(path, partial(picture.savefig, format=kind, metadata=metadata))
    return list(paths.values())


def save_for_paper(picture: Picture, stem: Path) -> Path:
    """Write a picture that was drawn ``for_paper`` as PDF, the same bytes each time.

    The fonts are in the file.

    Args:
        picture: The picture.
        stem: The path of the file, without its ending.

    Returns:
        The path of the file.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    path = stem.with_name(f"{stem.name}.pdf")
    # A PDF would otherwise hold the date.
    options = {"format": "pdf", "metadata": {"CreationDate": None}}
    write_listed(path, partial(picture.savefig, **options))
    return path
