"""``ata-gym policies``, ``ata-gym methods`` and ``ata-gym scenarios``: what is there."""

from __future__ import annotations

from rich import box
from rich.table import Table

import ata_policies
from ata_gym.cli.console import show
from ata_gym.extras import require
from ata_gym.scenarios import scenario, scenario_names


def policies() -> None:
    """List the policies that are installed, and the constants that each uses.

    The scenarios named icml2025 were published with the constants of the preprint: ata and ata-empirical. Those of
    the ICML version are in ata-icml and ata-empirical-icml.
    """
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    for title, width in (("plays", 0), ("constants", 12), ("what it does", 22), ("source", 12)):
        table.add_column(title, min_width=width, no_wrap=width == 0)
    for name in ata_policies.names():
        policy = ata_policies.load(name)
        table.add_row(name, policy.env_id.partition("/")[2], policy.constants, policy.summary(), policy.source)
    show(table)


def methods() -> None:
    """List the training methods that `ata-gym train --methods` compares with the policies."""
    require("torch", extra="train", purpose="The command methods")
    from ata_gym.training.methods import METHODS  # noqa: PLC0415 - torch takes seconds to import

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for title, width in (("what it does", 40), ("source", 20)):
        table.add_column(title, min_width=width)
    for name, method in METHODS.items():
        table.add_row(name, method.summary(), method.source)
    show(table)


def scenarios() -> None:
    """List the named worlds: n workers, B results a round, and the published hyperparameters alpha and eta."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("scenario", no_wrap=True)
    for title in ("n", "B", "rounds", "alpha", "eta"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("task times")
    for name in scenario_names():
        world = scenario(name)
        numbers = (world.pool.n, world.budget, f"{world.horizon:,}", f"{world.alpha:.6g}", f"{world.eta:g}")
        table.add_row(name, *map(str, numbers), world.summary)
    show(table)
