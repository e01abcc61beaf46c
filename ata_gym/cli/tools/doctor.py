"""``ata-gym doctor``: what is installed and works, and what to install for the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, show


def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Start a Ray cluster of one processor for a moment.")] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also look at the nodes of this running Ray cluster.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Say what is installed, what works, and what to install.

    The doctor looks at packages, devices, backends and engines. The exit code is 1 if something that is installed is
    broken.
    Where only the base packages are installed, `python -m ata_gym.cluster.doctor` says the same without a table.

    ```
    ata-gym doctor
    ata-gym doctor --ray --address 10.0.0.1:6379
    ```
    """
    from rich.markup import escape  # noqa: PLC0415 - the bench takes a second

    from ata_gym.bench.report.table import LEFT, WRAP, Table  # noqa: PLC0415
    from ata_gym.cluster.doctor import as_json, examine, exit_code  # noqa: PLC0415

    findings = examine(ray, address)
    if json:
        say(as_json(findings))
    else:
        texts = [(f.subject, f.state, f.detail + f"\n-> {f.cure}" * bool(f.cure)) for f in findings]
        rows = [tuple(map(escape, row)) for row in texts]  # an extra's brackets are no markup
        show(Table("", {"what": LEFT, "state": LEFT, "what is there, and -> what to do": WRAP}, rows))
    if code := exit_code(findings):
        raise typer.Exit(code)
