"""The parts of a docstring in NumPy's form, as pages and terminals show them."""

import re


def blocks(text: str) -> list[tuple[str, str]]:
    r"""The paragraphs of a docstring, each with its kind: ``text``, ``title``, ``list``, ``code`` or ``terms``.

    >>> blocks("One\ntwo.\n\nParameters\n----------\nweight\n    Above 0.\n\n>>> 1 + 1\n2")
    [('text', 'One two.'), ('title', 'Parameters'), ('terms', 'weight\n    Above 0.'), ('code', '>>> 1 + 1\n2')]
    >>> blocks("- one,\n  and\n- two")
    [('list', '- one, and\n- two')]
    """
    found: list[tuple[str, str]] = []
    for part in re.split(r"\n\s*\n", re.sub(r"(?m)^(.+)\n-{3,}$", r"\1\n\n", text.strip("\n"))):
        if not part.strip():
            continue
        if f"{part.strip()}\n---" in text:
            found.append(("title", part.strip()))
        elif part.lstrip().startswith(">>>") or all(line.startswith("    ") for line in part.splitlines()):
            found.append(("code", part))
        elif part.startswith("- "):
            found.append(("list", re.sub(r"\n +", " ", part)))
        elif "\n    " in part and not part.startswith(" "):
            found.append(("terms", part))
        else:
            found.append(("text", " ".join(part.split())))
    return found


def terms(text: str) -> list[tuple[str, str]]:
    r"""The names of a list of parameters, each with its description.

    >>> terms("weight\n    Above 0.\nbeta\n    At least\n    1.")
    [('weight', 'Above 0.'), ('beta', 'At least 1.')]
    """
    parts = re.split(r"\n(?! )", text)
    return [(part.partition("\n")[0], " ".join(part.partition("\n")[2].split())) for part in parts]


def pieces(text: str) -> list[tuple[bool, str]]:
    """The pieces of a paragraph, each with whether it is code, which stands in double backquotes.

    >>> pieces("of ``a_i`` tasks")
    [(False, 'of '), (True, 'a_i'), (False, ' tasks')]
    """
    return [(place % 2 == 1, piece) for place, piece in enumerate(text.split("``")) if piece]
