"""Make the small pictures of the notebooks' list: the first picture in the output of each, 560 pixels wide.

``python notebooks/thumbnails.py`` writes ``notebooks/pictures/notebook-NAME.png`` for every notebook.
"""

import base64
from io import BytesIO
from pathlib import Path

import nbformat
from PIL import Image

NOTEBOOKS, WIDTH, COLOURS = Path(__file__).parent, 560, 128


def thumbnail(notebook: Path) -> Image.Image:
    """The first picture of a notebook, made small."""
    outputs = [output for cell in nbformat.read(notebook, 4).cells for output in cell.get("outputs", ())]
    first = next(output.data["image/png"] for output in outputs if "image/png" in output.get("data", {}))
    with Image.open(BytesIO(base64.b64decode(first))) as picture:
        height = round(picture.height * WIDTH / picture.width)
        small = picture.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
    return small.quantize(COLOURS, dither=Image.Dither.NONE)


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        thumbnail(path).save(NOTEBOOKS / "pictures" / f"notebook-{path.stem}.png", optimize=True)
