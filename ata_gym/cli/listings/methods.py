"""``ata-gym methods``: the table of training methods."""

from __future__ import annotations

from ata_gym.cli import options
from ata_gym.cli.console import say_json, show
from ata_gym.utils.extras import require


def methods(json: options.Json = False) -> None:
    """List the training methods that the policies compete with.

    `ata-gym train --methods` takes their names: asynchronous and synchronous ones, all on the same task times.

    ```
    ata-gym methods
    ata-gym methods --json
    ```
    """
    require("torch", extra="train", purpose="The command methods")
    from ata_gym.bench.report.table import LEFT, WRAP, Table  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.methods import METHODS  # noqa: PLC0415

    if json:
        say_json([{"name": name, "summary": one.summary(), "source": one.source} for name, one in METHODS.items()])
        return
    rows = [(name, method.summary(), method.source) for name, method in METHODS.items()]
    show(Table("", {"method": LEFT, "what it does": WRAP, "source": WRAP}, rows))
