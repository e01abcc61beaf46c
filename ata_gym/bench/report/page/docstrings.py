"""The parts of a docstring in Google's form, as pages and terminals show them."""

import re
from textwrap import dedent

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Note):\n", re.MULTILINE)
_NAMED = ("Args", "Attributes", "Raises")
_TITLES = {"Args": "Arguments"}


def blocks(text: str) -> list[tuple[str, str]]:
    r"""Return the paragraphs of a docstring, each with its kind.

    A kind is ``text``, ``title`` (the name of a section), ``list``, ``code`` or ``terms`` (names
    with descriptions).

    Example:
        >>> blocks("One\ntwo.\n\nArgs:\n    weight: Above 0.\n\nExample:\n    >>> 1 + 1\n    2")[:2]
        [('text', 'One two.'), ('title', 'Arguments')]
        >>> blocks("Args:\n    weight: Above 0.\n\nExample:\n    >>> 1 + 1\n    2")[1:]
        [('terms', 'weight: Above 0.'), ('title', 'Example'), ('code', '>>> 1 + 1\n2')]
        >>> blocks("- one,\n  and\n- two")
        [('list', '- one, and\n- two')]
    """
    paragraphs: list[tuple[str, str]] = []
    section = ""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if not part.strip():
            continue
        heading = _SECTION.match(part)
        if heading is None:
            # A section ends with the first paragraph that is not indented.
            if not part.startswith(" "):
                section = ""
            paragraphs.append(_paragraph(part, section))
        else:
            section = heading[1]
            paragraphs.append(("title", _TITLES.get(section, section)))
            paragraphs.append(_paragraph(part[heading.end() :], section))
    return paragraphs


def _paragraph(part: str, section: str) -> tuple[str, str]:
    """Return the kind of a paragraph of a section, and its text without the indentation.

    ``section`` is empty for a paragraph outside of all sections.
    """
    part = dedent(part)
    if section in _NAMED:
        return "terms", part
    if part.startswith(">>>") or section == "Example":
        return "code", part
    if part.startswith("- "):
        return "list", re.sub(r"\n +", " ", part)
    return "text", " ".join(part.split())


def terms(text: str) -> list[tuple[str, str]]:
    r"""Return the names of a list of parameters, each with its description.

    Example:
        >>> terms("weight: Above 0.\nbeta: At least\n    1.")
        [('weight', 'Above 0.'), ('beta', 'At least 1.')]
    """
    descriptions = []
    # A line that begins with a space continues the description above it.
    for part in re.split(r"\n(?! )", text):
        name, _, description = part.partition(": ")
        descriptions.append((name, " ".join(description.split())))
    return descriptions


def pieces(text: str) -> list[tuple[bool, str]]:
    """Return the pieces of a paragraph, each with whether it is code.

    Code stands in double backquotes.

    Example:
        >>> pieces("of ``a_i`` tasks")
        [(False, 'of '), (True, 'a_i'), (False, ' tasks')]
    """
    return [(place % 2 == 1, piece) for place, piece in enumerate(text.split("``")) if piece]
