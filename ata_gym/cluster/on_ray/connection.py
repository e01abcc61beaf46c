"""The connection with a Ray cluster.

The cluster runs already, or it is started on this machine and ends with the work.
"""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ata_gym.utils.extras import require
from ata_gym.utils.process.signals import alarms_cancelled, handlers_kept

_ANSWERS_WITHIN = 10.0
"""The seconds within which the head node of a cluster must accept a connection."""

CLIENT = "ray://"
"""What the address of a server for Ray Client begins with."""


def check_address(address: str, name: str) -> None:
    """Refuse an address that no cluster can have.

    Args:
        address: The address.
        name: The name of the option or variable that holds it, for the error.

    Raises:
        ValueError: If it is neither auto nor host:port.

    Example:
        >>> check_address("10.0.0.1:6379", "address")
        >>> check_address("10.0.0.1", "--address")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: --address must be auto, or host:port of Ray's head node, ..., not '10.0.0.1'
    """
    match = re.fullmatch(r"(?:[^\s:/]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", address)
    if address != "auto" and not (match and 0 < int(match[1]) < 2**16):
        raise ValueError(
            f"{name} must be auto, or host:port of Ray's head node, as 10.0.0.1:6379, not"
            f" {address!r}",
        )


def quiet_ray(purpose: str) -> Any:
    """Import ``ray`` so that it prints fewer messages, and sends no statistics.

    It does not print messages about processes and nodes that ended. Variables of the environment
    that the user has set stay as they are.

    Args:
        purpose: What needs Ray, for the error.

    Raises:
        MissingExtraError: If Ray is not installed.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return require("ray", extra="cluster", purpose=purpose)


def connect_ray(address: str | None = None, *, log_to_driver: bool = False, **options: Any) -> Any:
    """Connect this process with a Ray cluster, and return the module ``ray``.

    A cluster that is started here listens on loopback only: other machines cannot give it work. It
    ends with this process, or with ``ray.shutdown()``. For workers on several machines, start a
    cluster with ``ray start`` and give its address.

    Args:
        address: ``"auto"`` or host:port of a running cluster of which this machine is a node. By
            default the environment's ``RAY_ADDRESS``, as in jobs that were submitted; without it a
            cluster is started here. If this process has joined a cluster already, it stays there.
        log_to_driver: Whether the output of tasks is printed here, too. Ray's own messages go to
            its log files.
        options: Options of ``ray.init``, such as ``num_cpus``, for a cluster that is started here.

    Raises:
        ValueError: If no cluster can be joined at the address, or none can be started.
    """
    purpose = "A connection with Ray"
    ray: Any
    if log_to_driver:
        ray = require("ray", extra="cluster", purpose=purpose)
    else:
        ray = quiet_ray(purpose)
    if address is None and ray.is_initialized():
        return ray
    cluster_address = address or os.environ.get("RAY_ADDRESS")
    if cluster_address:
        check_address(cluster_address, "address" if address else "RAY_ADDRESS")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": log_to_driver}
    try:
        if cluster_address:
            join_ray(cluster_address, **quiet)
        else:
            with alarms_cancelled(), handlers_kept(), _on_loopback():
                ray.init("local", include_dashboard=False, **quiet, **options)
    except Exception as error:
        # Some errors of Ray have no class of their own.
        lines = (line.strip() for line in str(error).splitlines() if line.strip())
        reason = next(lines, type(error).__name__)
        if cluster_address:
            raise ValueError(
                f"no Ray cluster can be joined at {cluster_address}: {reason}",
            ) from error
        logs = f"its log files, under {os.environ.get('RAY_TMPDIR', '/tmp')}/ray, may say more"
        raise ValueError(f"Ray cannot be started on this machine: {reason} ({logs})") from error
    return ray


def join_ray(address: str, **options: Any) -> Any:
    """Join a running Ray cluster, and return the module ``ray``; ``connect_ray`` serves most users.

    Args:
        address: ``"auto"``, host:port of the head node, or ``ray://`` and host:port of its server
            for Ray Client.
        options: Options of ``ray.init``.

    Raises:
        OSError: If nothing listens at the address.
        Exception: What Ray raises where it cannot join; some of its errors have no class.
    """
    ray = quiet_ray("A connection with Ray")
    _check_listening(address.removeprefix(CLIENT))
    with alarms_cancelled(), handlers_kept():
        ray.init(address, **options)
    return ray


@contextmanager
def connected(address: str | None = None, processes: int | None = None) -> Iterator[Any]:
    """Connect as ``connect_ray`` does, and give the block the module ``ray``.

    At the end of the block, the process leaves the cluster if it had joined it here.

    Args:
        address: The address of a cluster, as for ``connect_ray``.
        processes: How many tasks a cluster that is started here runs at once; by default one for
            each processor.
    """
    joined = quiet_ray("A sweep on Ray").is_initialized() and address is None
    ray = connect_ray(address, num_cpus=processes)
    try:
        yield ray
    finally:
        if not joined:
            ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a cluster that is started in the block listen on loopback only."""
    constants: Any = import_module("ray._private.ray_constants")
    enabled = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled


def _check_listening(address: str) -> None:
    """Raise OSError if nothing listens at an address; Ray itself would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN).close()
