"""Whether Ray starts here, and what the nodes of a running cluster have."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import ata_gym
from ata_gym.cluster.doctor.child_processes import Trial
from ata_gym.cluster.doctor.finding import Finding
from ata_gym.cluster.on_ray.connection import LOCAL, LOOPBACK, find, is_host_and_port

_START_SECONDS = 120.0
_NODE_SECONDS = 60.0
_INSTALL = 'pip install "ata-gym[cluster]"'


def check_address(address: str) -> str:
    """Return the address of a cluster, or raise ValueError unless it is HOST:PORT, or ray://HOST:PORT for a client.

    >>> check_address("10.0.0.1:6379")
    '10.0.0.1:6379'
    >>> check_address("somewhere")
    Traceback (most recent call last):
    ...
    ValueError: the address of a Ray cluster must be HOST:PORT or ray://HOST:PORT, not 'somewhere'
    """
    if not is_host_and_port(address.removeprefix("ray://")):
        raise ValueError(f"the address of a Ray cluster must be HOST:PORT or ray://HOST:PORT, not {address!r}")
    return address


def ray_findings(start: bool, address: str | None) -> Iterator[Finding]:
    """Ray's version; a trial start if that is asked for; and the nodes of the cluster at an address."""
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        yield Finding("ray", "missing", "not installed", _INSTALL)
        return
    if not start:
        yield Finding("ray", "ok", f"{version} is installed; --ray tries whether a cluster starts")
    else:
        with Trial([["ray-start", json.dumps(LOOPBACK), json.dumps(LOCAL)]], _START_SECONDS) as trial:
            (outcome,) = trial.outcomes()
        fault = outcome.fault or outcome.reports["fault"]
        if fault:
            cure = 'pip install --force-reinstall "ray", if the logs under /tmp/ray say nothing else'
            yield Finding("ray", "broken", f"{version}: a cluster of one processor did not run a task: {fault}", cure)
        else:
            yield Finding("ray", "ok", f"{version}: a cluster of one processor started, ran a task and ended")
    if address is not None:
        yield from _nodes(address)


def _nodes(address: str) -> Iterator[Finding]:
    facts: dict[str, Any] = {}
    fault = _unheard(address)
    if not fault:
        with Trial([["ray-nodes", address, f"{_NODE_SECONDS:g}"]], _START_SECONDS + _NODE_SECONDS) as trial:
            (outcome,) = trial.outcomes()
        facts = dict(outcome.reports)
        fault = outcome.fault or facts.pop("fault", "")
    if fault:
        cure = "give the HOST:PORT that `ray start --head` printed, on a machine of the cluster, or ray://HOST:10001"
        yield Finding(f"cluster {address}", "broken", f"it cannot be joined: {fault}", cure)
    for name, node in sorted(facts.items()):
        yield _node(name.rpartition(" ")[0], node)


def _unheard(address: str) -> str:
    """Why nobody listens at an address; empty if somebody does."""
    try:
        find(address.removeprefix("ray://"))
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _node(host: str, node: dict[str, Any]) -> Finding:
    subject, install = f"node {host}", f'pip install "ata-gym[cluster]=={ata_gym.__version__}" on {host}'
    seen = f"{node['address']}: {_resources(node['resources'])}"
    if node.get("fault", "no answer"):
        reason = node.get("fault", "a task on it did not answer")
        return Finding(subject, "broken", f"{seen}; ata_gym cannot be imported there: {reason}", install)
    if node["version"] != ata_gym.__version__:
        detail = f"{seen}; ata_gym is {node['version']} there and {ata_gym.__version__} here"
        return Finding(subject, "broken", detail, install)
    same = node["python"] == platform.python_version()
    python = "" if same else f", Python {node['python']} (here {platform.python_version()})"
    return Finding(subject, "ok", f"{seen}; ata_gym {node['version']}{python}")


def _resources(resources: dict[str, float]) -> str:
    """What a node offers, without what Ray names after the node itself, and memory in GiB.

    >>> _resources({"CPU": 4.0, "memory": 2.0**31, "node:10.0.0.1": 1.0, "fast": 2.0})
    'CPU 4, memory 2 GiB, fast 2'
    """
    sizes = {"memory", "object_store_memory"}
    named = {name: value for name, value in resources.items() if not name.startswith("node:")}
    return ", ".join(
        f"{name} {value / 2**30:.3g} GiB" if name in sizes else f"{name} {value:g}" for name, value in named.items()
    )
