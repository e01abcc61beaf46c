"""Pictures of studies whose content is kept and which are not drawn: drawing takes half of the
time of a small study, and the bytes of what is drawn have tests of their own in test_pictures.py.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from ata_gym.bench.report import style
from ata_gym.utils.files import manifest

DRAW = style.save


def content(artist: Artist) -> str:
    """The words and numbers of a part of a picture, before it has a place on the page."""
    if isinstance(artist, Text):
        return artist.get_text()
    if isinstance(artist, Line2D):
        points = np.asarray(artist.get_xydata()).tolist()
        return f"{artist.get_label()} {artist.get_color()} {points}"
    if isinstance(artist, Collection):
        vertices = [path.vertices.tolist() for path in artist.get_paths()]
        shades = np.asarray(artist.get_array()).tolist()
        return f"{np.asarray(artist.get_offsets()).tolist()} {vertices} {shades}"
    if isinstance(artist, Patch):
        return f"{artist.get_label()} {artist.get_facecolor()} {artist.get_extents().bounds}"
    if isinstance(artist, AxesImage):
        return str(np.asarray(artist.get_array()).tolist())
    return ""


def sketch(picture: Figure, stem: Path, title: str = "") -> list[Path]:
    """In place of ``style.save``: two files of the words and numbers of a picture."""
    parts = [title, *map(content, picture.texts)]
    for axes in picture.axes:
        children = [*axes.lines, *axes.collections, *axes.patches, *axes.images, *axes.texts]
        labels = [axes.title, axes.xaxis.label, axes.yaxis.label]
        parts += map(content, [*children, *labels])
        if legend := axes.get_legend():
            parts += map(content, legend.get_texts())
    text = "\n".join(parts)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        manifest.write_listed(path, lambda part: part.write_text(text, "utf-8"))
    return paths


@pytest.fixture(scope="module", autouse=True)
def sketches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", sketch)
        yield
