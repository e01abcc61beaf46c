"""The connection with a Ray cluster: one that runs, or one that is started on this machine and ends with the work."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ata_gym.utils.extras import require
from ata_gym.utils.signals import TerminatedError, handlers_kept

_ANSWERS_WITHIN = 10.0
"""Seconds."""


def check_address(address: str, what: str) -> None:
    """Refuse an address that no cluster can have with a ValueError that names ``what`` it was given as.

    >>> check_address("10.0.0.1:6379", "address")
    >>> check_address("10.0.0.1", "--address")
    Traceback (most recent call last):
    ...
    ValueError: --address must be auto, or host:port of a Ray cluster's head, as 10.0.0.1:6379, not '10.0.0.1'
    """
    if address != "auto" and not re.fullmatch(r"([^\s:/]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}", address):
        raise ValueError(
            f"{what} must be auto, or host:port of a Ray cluster's head, as 10.0.0.1:6379, not {address!r}"
        )


def quiet_ray(purpose: str) -> Any:
    """The module ``ray``; where it is imported first here, it prints no messages about processes and nodes that ended.

    It also sends no statistics of use. Variables of the environment that the user has set stay as they are.
    MissingExtraError if it is not installed, which names what needs it.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return require("ray", extra="cluster", purpose=purpose)


@contextmanager
def connected(address: str | None = None, processes: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected with a cluster inside the block; Ray's messages are left to its log files.

    Parameters
    ----------
    address
        ``"auto"`` or host:port of a running cluster of which this machine is a node. By default the environment's
        ``RAY_ADDRESS``, as in jobs that were submitted; without it a cluster is started here, and shut down at the end.
        Where this process has joined a cluster already, it is this one.
    processes
        Tasks that a cluster started here may run at once; by default one for each processor.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.
    ValueError
        If no cluster can be joined at the address.
    """
    ray = quiet_ray("A sweep on Ray")
    if address is None and ray.is_initialized():
        yield ray
        return
    given = address or os.environ.get("RAY_ADDRESS")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        with handlers_kept():
            if given:
                check_address(given, "address" if address else "RAY_ADDRESS")
                find(given)
                ray.init(given, **quiet)
            else:
                ray.init("local", num_cpus=processes, include_dashboard=False, **quiet)
    except SystemExit as error:  # while it connects, Ray handles SIGTERM
        raise TerminatedError from error
    except (OSError, RuntimeError) as error:
        where = f"no Ray cluster can be joined at {given}" if given else "Ray cannot be started on this machine"
        raise ValueError(f"{where}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def find(address: str) -> None:
    """OSError if nothing listens at an address, OverflowError if it has no possible port; ``"auto"`` is not looked for.

    Ray itself would try for minutes.
    """
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN).close()
