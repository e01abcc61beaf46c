"""All checks of the doctor, one after the other."""

from __future__ import annotations

from ata_gym.cluster.doctor.devices import torch_findings
from ata_gym.cluster.doctor.finding import Finding
from ata_gym.cluster.doctor.machine import compiled_kernels, machine, package
from ata_gym.cluster.doctor.on_ray import check_address, ray_findings
from ata_gym.cluster.doctor.packages import packages, policies


def examine(start_ray: bool = False, address: str | None = None) -> list[Finding]:
    """Look at packages, kernels, devices, process groups, Ray and installed policies; it takes some seconds.

    Whatever may crash or hang runs in processes of its own, bounded in time, which have ended when this returns.

    Parameters
    ----------
    start_ray
        Whether to start a Ray cluster of one processor on this machine, run a task, and shut it down.
    address
        HOST:PORT of a running Ray cluster whose nodes are to be looked at.

    Raises
    ------
    ValueError
        If the address has another form.

    Examples
    --------
    In a program that must not start on a machine where something is broken::

        from ata_gym.cluster.doctor.examination import examine

        broken = [finding for finding in examine() if finding.state == "broken"]
    """
    if address is not None:
        check_address(address)
    return [
        package(),
        *machine(),
        *packages(),
        *compiled_kernels(),
        *torch_findings(),
        *ray_findings(start_ray, address),
        *policies(),
    ]
