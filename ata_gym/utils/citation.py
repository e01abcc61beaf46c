"""How to cite the software and the paper: CITATION.cff, which a wheel holds in the package, as BibTeX."""

from pathlib import Path
from typing import Any

from ata_gym.utils.extras import require

_KINDS = {"software": "software", "conference-paper": "inproceedings"}  # of CFF and of BibTeX
_SAME = ("version", "year", "url")  # fields that have one name in both


def bibtex() -> str:
    r"""An entry for the software, and one for each work that it refers to. MissingExtraError without PyYAML.

    >>> print(*bibtex().splitlines()[:3], sep="\n")
    @software{ata-gym,
      title = {{ata-gym}},
      author = {{The ata-gym authors}},
    """
    package = Path(__file__).parents[1]
    file = next(folder / "CITATION.cff" for folder in (package, package.parent) if (folder / "CITATION.cff").is_file())
    software = require("yaml", extra="bench", purpose="A citation").safe_load(file.read_text(encoding="utf-8"))
    return "\n\n".join(map(_entry, (software, *software["references"])))


def _entry(work: dict[str, Any]) -> str:
    people = [(one.get("family-names"), one.get("given-names"), one.get("name")) for one in work["authors"]]
    author = " and ".join(f"{family}, {given}" if family else f"{{{name}}}" for family, given, name in people)
    fields = {"title": f"{{{work['title']}}}", "author": author, "year": str(work.get("date-released", ""))[:4]}
    fields |= {"booktitle": work.get("conference", {}).get("name")} | {one: work[one] for one in _SAME if one in work}
    key = work["title"].partition(":")[0].lower()
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@{_KINDS[work['type']]}{{{key},\n{lines}}}"
