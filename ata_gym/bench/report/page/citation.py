"""The citation of the software and the paper: CITATION.cff as BibTeX.

A wheel holds the file in the package.
"""

from pathlib import Path
from typing import Any

import ata_gym
from ata_gym.utils.extras import require

_KINDS = {"software": "software", "conference-paper": "inproceedings"}  # of CFF and of BibTeX
_SAME_FIELDS = ("version", "year", "url")  # fields that have one name in both


def bibtex() -> str:
    r"""An entry for the software, and one for each work that it refers to.

    Raises:
        MissingExtraError: If PyYAML is not installed.

    Example:
        >>> print(*bibtex().splitlines()[:3], sep="\n")
        @software{ata-gym,
          title = {{ata-gym}},
          author = {{The ata-gym authors}},
    """
    # A wheel holds the file in the package, a checkout beside it.
    package = Path(str(ata_gym.__file__)).parent
    paths = (package / "CITATION.cff", package.parent / "CITATION.cff")
    file = next(path for path in paths if path.is_file())
    yaml = require("yaml", extra="bench", purpose="A citation")
    software = yaml.safe_load(file.read_text(encoding="utf-8"))
    return "\n\n".join(map(_entry, (software, *software["references"])))


def _entry(work: dict[str, Any]) -> str:
    """The BibTeX entry of a work of the file."""
    authors = []
    for person in work["authors"]:
        if person.get("family-names"):
            authors.append(f"{person['family-names']}, {person.get('given-names')}")
        else:
            # BibTeX keeps a name in braces whole, as an organisation needs it.
            authors.append(f"{{{person.get('name')}}}")
    author = " and ".join(authors)
    fields = {
        "title": f"{{{work['title']}}}",
        "author": author,
        "year": str(work.get("date-released", ""))[:4],
    }
    fields["booktitle"] = work.get("conference", {}).get("name")
    fields |= {field: work[field] for field in _SAME_FIELDS if field in work}
    key = work["title"].partition(":")[0].lower()
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@{_KINDS[work['type']]}{{{key},\n{lines}}}"
