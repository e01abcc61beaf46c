"""The connection with a Ray cluster: one that runs, or one that is started on this machine and ends with the work."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ata_gym.utils.extras import require
from ata_gym.utils.signals import alarms_cancelled, handlers_kept

_ANSWERS_WITHIN = 10.0  # seconds


def check_address(address: str, what: str) -> None:
    """Raise ValueError, which names ``what`` it was given as, for an address that no cluster can have.

    >>> check_address("10.0.0.1:6379", "address")
    >>> check_address("10.0.0.1", "--address")
    Traceback (most recent call last):
    ...
    ValueError: --address must be auto, or host:port of Ray's head node, as 10.0.0.1:6379, not '10.0.0.1'
    """
    found = re.fullmatch(r"(?:[^\s:/]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", address)
    if address != "auto" and not (found and 0 < int(found[1]) < 2**16):
        raise ValueError(f"{what} must be auto, or host:port of Ray's head node, as 10.0.0.1:6379, not {address!r}")


def quiet_ray(purpose: str) -> Any:
    """Import ``ray`` so that it prints no messages about processes and nodes that ended, and sends no statistics.

    Variables of the environment that the user has set stay as they are. MissingExtraError, which names the ``purpose``,
    if Ray is not installed.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return require("ray", extra="cluster", purpose=purpose)


def connect_ray(address: str | None = None, *, log_to_driver: bool = False, **options: Any) -> Any:
    """Connect this process with a Ray cluster, and return the module ``ray``.

    A cluster that is started here listens on loopback only: other machines cannot give it work. It ends with this
    process, or with ``ray.shutdown()``. For workers on several machines, start a cluster with ``ray start`` and give
    its address. ValueError if none can be joined at the address, or none can be started.

    - ``address``: ``"auto"`` or host:port of a running cluster of which this machine is a node. By default the
      environment's ``RAY_ADDRESS``, as in jobs that were submitted; without it a cluster is started here. If this
      process has joined a cluster already, it stays in this one.
    - ``log_to_driver``: whether the output of tasks is printed here, too. Ray's own messages go to its log files.
    - ``options``: options of ``ray.init``, such as ``num_cpus``, for a cluster that is started here.
    """
    purpose = "A connection with Ray"
    ray: Any = require("ray", extra="cluster", purpose=purpose) if log_to_driver else quiet_ray(purpose)
    if address is None and ray.is_initialized():
        return ray
    given = address or os.environ.get("RAY_ADDRESS")
    if given:
        check_address(given, "address" if address else "RAY_ADDRESS")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": log_to_driver}
    try:
        with alarms_cancelled(), handlers_kept():
            if given:
                _check_that_somebody_listens(given)
                ray.init(given, **quiet)
            else:
                with _on_loopback():
                    ray.init("local", include_dashboard=False, **quiet, **options)
    except Exception as error:  # Ray raises some that are of no class of their own
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if given:
            raise ValueError(f"no Ray cluster can be joined at {given}: {reason}") from error
        logs = f"its log files, under {os.environ.get('RAY_TMPDIR', '/tmp')}/ray, may say more"
        raise ValueError(f"Ray cannot be started on this machine: {reason} ({logs})") from error
    return ray


@contextmanager
def connected(address: str | None = None, processes: int | None = None) -> Iterator[Any]:
    """Connect as :func:`connect_ray` does, and give the block the module ``ray``; at its end leave what was joined.

    A cluster that is started here runs up to ``processes`` tasks at once, by default one for each processor.
    """
    before = quiet_ray("A sweep on Ray").is_initialized() and address is None
    ray = connect_ray(address, num_cpus=processes)
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()


@contextmanager
def _on_loopback() -> Iterator[None]:
    constants: Any = import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _check_that_somebody_listens(address: str) -> None:
    """Raise OSError if nothing listens at an address, which Ray itself would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_WITHIN).close()
