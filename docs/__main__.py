"""``python -m docs FOLDER``: build the site, as ``make docs`` does; any warning is an error."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.cmd.build import build_main

from docs.site import sources

CONFIGURATION = Path(sources.__file__).parent


def main(folder: Path) -> int:
    """Build the site into a folder, in place of an earlier one; return the exit code.

    Raises:
        ValueError: If the folder holds anything else.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / ".buildinfo").is_file():
            raise ValueError(f"{folder} holds files that are not of a site: name another folder")
        shutil.rmtree(folder)
    # What Sphinx has read stays until the end (a quarter of the time went into a look for garbage).
    gc.disable()
    with TemporaryDirectory() as room:
        source = Path(room, "source")
        sources.gather(source)
        options = ["-q", "-W", "-c", str(CONFIGURATION), "-d", str(Path(room, "read"))]
        code = build_main([*options, str(source), str(folder)])
    files = [path for path in folder.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{pages} pages, {size:.0f} MB: {folder / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:2] or ["build", "docs"])))
