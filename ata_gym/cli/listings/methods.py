"""``ata-gym methods``: the table of training methods."""

from __future__ import annotations

from ata_gym.cli.console import show
from ata_gym.utils.extras import require


def methods() -> None:
    """List the training methods that `ata-gym train --methods` compares with the policies."""
    require("torch", extra="train", purpose="The command methods")
    from ata_gym.bench.report.table import LEFT, WRAP, Table  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.methods import METHODS  # noqa: PLC0415

    rows = [(name, method.summary(), method.source) for name, method in METHODS.items()]
    show(Table("", {"method": LEFT, "what it does": WRAP, "source": WRAP}, rows))
