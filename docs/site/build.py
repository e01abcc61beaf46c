"""The build: gather the sources in a folder of their own, and let Sphinx make pages of them."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from sphinx.application import Sphinx

from docs.site import modules, named, sources

HERE = Path(__file__).parent


def build(folder: Path, without: Collection[str] = ()) -> tuple[dict[str, str], bool]:
    """Build the site into a folder, in place of what an earlier build left there.

    ``without`` names modules to leave out of the API, with all below them. The answer is what was
    left out, each module with the reason, and whether Sphinx had nothing to warn of.

    Raises:
        ValueError: If the folder holds anything else.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / ".buildinfo").is_file():
            raise ValueError(f"{folder} holds files that are not of a site: name another folder")
        shutil.rmtree(folder)
    with TemporaryDirectory() as room:
        source = Path(room, "source")
        sources.gather(source)
        left_out = dict.fromkeys(without, "not asked for")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, when they are imported
            named.write(source)
            modules.write(source, left_out)
        app = Sphinx(
            source,
            HERE,
            folder,
            Path(room, "read"),
            "html",
            {"left_out": [*left_out]},
            status=None,
            warning=sys.stderr,
            warningiserror=True,
        )
        app.build()
    return left_out, not app.statuscode
