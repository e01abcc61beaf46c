"""What the metadata need beyond pyproject.toml: the project's address and description.

``ATA_GYM_URL=https://host/owner/ata-gym``, set while a package is built, is the one place that
names the address. With it the metadata have URLs, and the links and pictures of README.md lead to
the files of this version there. Without it there is no URL, and the description has neither
pictures nor links to files. A source distribution keeps what it was built with: a wheel that is
built from it has the same metadata.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# and the caption on the next lines
_PICTURE = re.compile(
    r"^!\[[^]]*\]\([^)]*\)\n(?:.+\n)*\n?",
    re.MULTILINE,
)
_LINK = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:)([^()\s]+)\)")  # to a file of the project


def description(readme: str, files: str) -> str:
    r"""A page of Markdown whose links and pictures lead to ``files``.

    It is an address with ``{}`` in the place of ``blob`` or ``raw``. If it is empty, pictures and
    their captions are left out, and a link becomes its text.

    Example:
        >>> page = "![A plot](a.png)\n*Caption.*\n\nSee [the plan](plan.md).\n"
        >>> description(page, "https://example.org/{}/v1/").splitlines()[0]
        '![A plot](https://example.org/raw/v1/a.png)'
        >>> description(page, "https://example.org/{}/v1/").splitlines()[-1]
        'See [the plan](https://example.org/blob/v1/plan.md).'
        >>> description(page, "")
        'See the plan.\n'
    """

    def prose(text: str) -> str:
        if not files:
            return _LINK.sub(r"\2", _PICTURE.sub("", text))
        return _LINK.sub(
            lambda it: f"{it[1]}[{it[2]}]({files.format('raw' if it[1] else 'blob')}{it[3]})",
            text,
        )

    parts = _CODE.split(readme)  # code at the odd places
    return "".join(part if place % 2 else prose(part) for place, part in enumerate(parts))


class CustomMetadataHook(MetadataHookInterface):
    """The dynamic fields of pyproject.toml: ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields; ValueError if the address is none."""
        address = os.environ.get("ATA_GYM_URL", "").rstrip("/")
        if address and not re.fullmatch(r"https://[^/\s]+/\S+", address):
            raise ValueError(
                f"ATA_GYM_URL is {address!r}, and should be like https://host/owner/ata-gym",
            )
        if address:
            files = f"{address}/{{}}/v{metadata['version']}/"
        else:
            files = ""
        text = description(Path(self.root, "README.md").read_text(encoding="utf-8"), files)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if address:
            # The commands lead to pages of the source: see ata_gym/cli/guide.py.
            source = files.format("blob").rstrip("/")
            metadata["urls"] = {
                "Homepage": address,
                "Documentation": f"{files.format('tree')}docs",
                "Changelog": f"{source}/CHANGELOG.md",
                "Source": source,
                "Issues": f"{address}/issues",
            }
