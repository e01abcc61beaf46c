"""What a reader does next: three commands, and the page of each command."""

from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import ata_gym

NEXT = """\
  ata-gym bench --scenario five-workers --out results/mine \\
      --policies uta,ata-icml,package.module:MyPolicy
      compare a policy of your own with the policies of the zoo
  ata-gym learn --scenario drawn-6-v1 --out results/agent
      train an RL agent, and compare it with the policies
  ata-gym what-if times.csv
      what stragglers cost in a job of yours, from its log"""
"""The three commands after the demo."""

PAGES = {
    "demo": "notebooks/quickstart.ipynb",
    "watch": "notebooks/quickstart.ipynb",
    "policies": "policies/README.md",
    "scenarios": "notebooks/changing-world.ipynb",
    "bench": "notebooks/results.md",
    "report": "notebooks/results.md",
    "leaderboard": "policies/leaderboard.md",
    "track": "policies/changing.md",
    "reproduce": "notebooks/reproduce-icml2025.ipynb",
    "train": "notebooks/training.ipynb",
    "learn": "notebooks/agents/README.md",
    "pretrain": "policies/learned.md",
    "check": "notebooks/own-policy.ipynb",
    "what-if": "docs/guide/formats.md",
    "doctor": "docs/guide/install.md",
    "warmup": "docs/guide/install.md",
    "cite": "CITATION.cff",
}
"""The page of each command, as a path in the project."""

_SOURCE = "Source, "
"""The beginning of the metadata's line with the address of the files of this version."""


def where_to_read(command: str) -> str:
    """Return where the page of a command is.

    It is an address where the package was built with the project's, a file where this is a
    checkout, and otherwise the command that shows the command's help.

    Example:
        >>> where_to_read("what-if").endswith(("formats.md", "ata-gym what-if --help"))
        True
    """
    page = PAGES[command]
    try:
        urls = metadata("ata-gym").get_all("Project-URL") or []
    except PackageNotFoundError:
        # it runs from a folder without an install
        urls = []
    for url in urls:
        if url.startswith(_SOURCE):
            return f"{url.removeprefix(_SOURCE)}/{page}"
    file = Path(str(ata_gym.__file__)).parents[1] / page
    if not file.is_file():
        return f"ata-gym {command} --help"
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    return str(file)
