"""Make the small pictures in the table of README.md from the committed output of the notebooks.

``python notebooks/thumbnails.py`` writes ``notebooks/pictures/notebook-*.png``. A notebook with one
picture gives that one, and one with several that of the cell with the tag ``thumbnail``.
"""

from __future__ import annotations

import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent
# twice the pixels at which the table shows it, in few colours, for small files
WIDTH = 560
COLOURS = 128
TAG = "thumbnail"


def picture(notebook: Path) -> Image.Image:
    """The output picture of a notebook that stands for it; ValueError if it is not clear which one
    that is.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = [
        (TAG in cell["metadata"].get("tags", ()), out["data"]["image/png"])
        for cell in cells
        for out in cell.get("outputs", ())
        if "image/png" in out.get("data", {})
    ]
    chosen = [data for tagged, data in found if tagged or len(found) == 1]
    if len(chosen) != 1:
        raise ValueError(
            f"{notebook.name} has {len(found)} pictures; give the tag {TAG!r} to the cell of one",
        )
    return Image.open(BytesIO(b64decode("".join(chosen[0]))))


def thumbnail(notebook: Path) -> Image.Image:
    """The small picture of a notebook, the same in each run."""
    whole = picture(notebook).convert("RGBA")
    white = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
    small = white.resize(
        (WIDTH, round(WIDTH * white.height / white.width)),
        Image.Resampling.LANCZOS,
    )
    return small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def main() -> None:
    """Write all of them."""
    for notebook in sorted(FOLDER.glob("*.ipynb")):
        thumbnail(notebook).save(
            FOLDER / "pictures" / f"notebook-{notebook.stem}.png",
            optimize=True,
        )


if __name__ == "__main__":
    main()
