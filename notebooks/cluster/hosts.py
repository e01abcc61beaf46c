"""Hosts on one machine: network namespaces with links of given rates, and processors by quotas.

Each host is a network namespace with one interface, whose other end is a port of a bridge in a
namespace of its own, so that no interface, route or rule of the machine changes. ``tc tbf`` limits
the rate in both directions, ``netem`` delays what a host sends, where the kernel has it. A cgroup
limits the processor time of all that a host runs. It needs root, and works on Linux alone; what was
set up is taken down at the end of the block, also after an error and on Ctrl-C. All names hold the
number of the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

PERIOD = 20_000
"""Microseconds over which a quota holds: shorter than a task, so that tasks of a host are alike."""
LEAST_QUOTA = 1_000
"""The smallest quota in microseconds that the kernel takes."""
SPARE = 0.25
"""Processors that hosts leave to the head and to the machine."""
LEAST_LINK = 0.1
"""The smallest rate of a link in Mbit/s."""
LEAST_BURST = 32 * 1024
"""The bytes that a link may send at once, whatever its rate."""
TICKS = 250
"""How often in a second a link is refilled at least, so that fast ones need a larger burst."""

INTERFACE = "eth0"
"""The interface of each host; no other namespace sees its name."""
HEAD_ADDRESS = "10.77.0.254"
"""The address of the bridge, at which what belongs to no host listens."""

_COMMANDS = ("ip", "tc", "nsenter", "sh")
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""The bits of the rights by which namespaces and links are made."""
_ENDS_WITHIN = 5.0
"""Seconds in which processes of a host may end by themselves."""


@dataclass(frozen=True)
class Cgroups:
    """Where processors are limited."""

    folder: str
    version: int

    def limit(self, processors: float | None) -> tuple[str, str]:
        """Return the file that holds a limit, and what to write there; None is no limit.

        Example:
            >>> Cgroups("/sys/fs/cgroup", 2).limit(0.15)
            ('cpu.max', '3000 20000')
        """
        if self.version == 1:
            return "cpu.cfs_quota_us", "-1" if processors is None else str(quota(processors))
        return "cpu.max", f"{'max' if processors is None else quota(processors)} {PERIOD}"


@dataclass(frozen=True)
class Host:
    """A host of the layout."""

    name: str
    address: str
    namespace: str
    port: str
    """The interface of the bridge that leads to it."""
    cgroup: str
    """The folder of its cgroup."""
    processors: float
    link: float
    """Mbit/s in each direction."""
    delay: float
    """Milliseconds by which what it sends is delayed."""


@dataclass(frozen=True)
class Layout:
    """Hosts beside a bridge, and how fast they are."""

    hosts: tuple[Host, ...]
    switch: str
    """The namespace of the bridge."""
    head_cgroup: str
    """The folder of the cgroup, without a limit, of what belongs to no host."""
    cgroups: Cgroups

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Layout:
        """Return the layout that ``dataclasses.asdict`` made plain data of."""
        hosts = tuple(Host(**host) for host in data["hosts"])
        return cls(hosts, data["switch"], data["head_cgroup"], Cgroups(**data["cgroups"]))

    def processors(self, processors: Mapping[str, float | None]) -> None:
        """Limit the processors of hosts, by their names; None is no limit."""
        for host in self.hosts:
            if host.name in processors:
                file, text = self.cgroups.limit(processors[host.name])
                Path(host.cgroup, file).write_text(text)

    def links(self, links: Mapping[str, float]) -> None:
        """Set the Mbit/s of hosts, by their names."""
        for host in self.hosts:
            if host.name in links:
                for end in ((host.namespace, INTERFACE), (self.switch, host.port)):
                    _tc(*end, "change", "root", *tbf(links[host.name]))

    def end_processes(self) -> None:
        """End all that runs on the hosts and on the head, first with patience."""
        _end(self.cgroup_folders, remove=False)

    @property
    def cgroup_folders(self) -> list[Path]:
        """The cgroups of the hosts and of the head."""
        return [*(Path(host.cgroup) for host in self.hosts), Path(self.head_cgroup)]

    def command(self, host: Host | None, words: Sequence[str]) -> list[str]:
        """Return the command by which words run on a host; None is the head."""
        if host is None:
            namespace, cgroup = self.switch, self.head_cgroup
        else:
            namespace, cgroup = host.namespace, host.cgroup
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        # ip netns exec would hide the cgroups behind a new /sys
        return ["nsenter", f"--net=/run/netns/{namespace}", "sh", "-c", join, cgroup, *words]


def quota(processors: float) -> int:
    """Return the microseconds of each period that so many processors have.

    Example:
        >>> quota(0.15), quota(1.5)
        (3000, 30000)
    """
    microseconds = round(processors * PERIOD)
    if microseconds < LEAST_QUOTA:
        raise ValueError(
            f"{processors:g} of a processor is too small a quota: give at least"
            f" {LEAST_QUOTA / PERIOD:g}",
        )
    return microseconds


def tbf(link: float) -> list[str]:
    """Return the words by which ``tc`` limits a link to so many Mbit/s.

    Example:
        >>> " ".join(tbf(50.0))
        'handle 1: tbf rate 50000kbit burst 32768 latency 100ms'
    """
    burst = max(LEAST_BURST, round(link * 1e6 / 8 / TICKS))
    rate = f"{round(1000 * link)}kbit"
    return ["handle", "1:", "tbf", "rate", rate, "burst", str(burst), "latency", "100ms"]


def plan(
    processors: Sequence[float],
    links: Sequence[float],
    delays: Sequence[float],
    cgroups: Cgroups,
    *,
    number: int,
    available: float,
) -> Layout:
    """Plan hosts: their names, addresses, and how fast they are; nothing is set up.

    Args:
        processors: The processors of each host.
        links: The Mbit/s of each host's link.
        delays: The milliseconds by which each host's packets are delayed.
        cgroups: Where processors are limited.
        number: What tells these hosts from those of others: the number of the process.
        available: The processors of the machine.

    Raises:
        ValueError: For lists of different lengths, fewer than two hosts or more than 200, numbers
            that are too small, and more processors than the machine has.
    """
    if not len(processors) == len(links) == len(delays):
        raise ValueError(
            f"each host needs its processors, link and delay, and there are {len(processors)},"
            f" {len(links)} and {len(delays)} of them",
        )
    if not 2 <= len(processors) <= 200:
        raise ValueError(f"there must be 2 to 200 hosts, not {len(processors)}")
    for each in processors:
        quota(each)
    for link in links:
        # NaN is no rate either
        if not link >= LEAST_LINK:
            raise ValueError(f"a link needs at least {LEAST_LINK:g} Mbit/s, and {link:g} are given")
    for delay in delays:
        if not delay >= 0:
            raise ValueError(f"a delay is at least 0 ms, and {delay:g} are given")
    if sum(processors) > available - SPARE:
        raise ValueError(
            f"the hosts need {sum(processors):g} processors and {SPARE:g} besides, and the machine"
            f" has {available:g}: give them less, or they would not have what their quotas say",
        )
    prefix = f"ata{number}"
    hosts = tuple(
        Host(
            name=f"host {place}",
            address=f"10.77.0.{place + 1}",
            namespace=f"{prefix}-{place}",
            port=f"port{place}",
            cgroup=f"{cgroups.folder}/{prefix}-{place}",
            processors=processors[place],
            link=links[place],
            delay=delays[place],
        )
        for place in range(len(processors))
    )
    return Layout(hosts, f"{prefix}-switch", f"{cgroups.folder}/{prefix}-head", cgroups)


def cgroups_in(mounts: str) -> Cgroups | None:
    """Return where processors can be limited by the text of /proc/mounts; None if nowhere.

    Example:
        >>> cgroups_in("cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0")
        Cgroups(folder='/sys/fs/cgroup/cpu', version=1)
    """
    rows = [line.split() for line in mounts.splitlines()]
    for _, folder, kind, options, *_ in rows:
        if kind == "cgroup" and "cpu" in options.split(","):
            return Cgroups(folder, 1)
    for _, folder, kind, *_ in rows:
        if kind == "cgroup2":
            return Cgroups(folder, 2)
    return None


def missing_rights() -> str:
    """Return in one sentence what this machine or user lacks; empty if nothing is known to."""
    if not sys.platform.startswith("linux"):
        return "hosts on one machine need the network namespaces of Linux"
    if os.geteuid() != 0:
        return "hosts on one machine need root, for namespaces, links and quotas: run it with sudo"
    absent = [command for command in _COMMANDS if shutil.which(command) is None]
    if absent:
        return f"hosts on one machine need {' and '.join(absent)}: install iproute2 and util-linux"
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    for name, bit in _CAPABILITIES.items():
        if not int(effective, 16) >> bit & 1:
            return f"hosts on one machine need {name}, which root lacks in this container"
    cgroups = cgroups_in(Path("/proc/mounts").read_text(encoding="utf-8"))
    if cgroups is None:
        return "hosts on one machine need cgroups for their quotas, and none are mounted"
    if not os.access(cgroups.folder, os.W_OK):
        return f"hosts on one machine need to write in {cgroups.folder}, which is read-only"
    controllers = Path(cgroups.folder, "cgroup.subtree_control")
    if cgroups.version == 2 and "cpu" not in controllers.read_text(encoding="ascii").split():
        return f"hosts on one machine need the controller cpu in {controllers}, which lacks it"
    return ""


@contextmanager
def laid_out(layout: Layout) -> Iterator[None]:
    """Set hosts up for the block, at first without a limit of their processors, and then take them
    down, with all processes that they run.

    Raises:
        RuntimeError: If a command fails; all is taken down then.
    """
    with ExitStack() as stack:
        for name in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, name, signal.signal(name, _leave))
        stack.callback(_take_down, layout)
        for folder in layout.cgroup_folders:
            folder.mkdir()
            if layout.cgroups.version == 1:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        _ip("netns", "add", layout.switch)
        _ip("-n", layout.switch, "link", "set", "lo", "up")
        _ip("-n", layout.switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", layout.switch, "address", "add", f"{HEAD_ADDRESS}/24", "dev", "bridge0")
        _ip("-n", layout.switch, "link", "set", "bridge0", "up")
        delayed = True
        for host in layout.hosts:
            _add_host(host, layout.switch)
            if host.delay > 0 and delayed:
                delayed = _delay(host)
        if not delayed:
            print("The kernel has no netem, so that links have rates and no delays.", flush=True)
        yield


def _add_host(host: Host, switch: str) -> None:
    """Make the namespace of a host, with its link to the bridge."""
    own, peer = ("-n", host.namespace), ("-n", switch)
    _ip("netns", "add", host.namespace)
    ends = ("type", "veth", "peer", "name", INTERFACE, "netns", host.namespace)
    _ip(*peer, "link", "add", host.port, *ends)
    _ip(*peer, "link", "set", host.port, "master", "bridge0", "up")
    _ip(*own, "link", "set", "lo", "up")
    _ip(*own, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    _ip(*own, "link", "set", INTERFACE, "up")
    for end in ((host.namespace, INTERFACE), (switch, host.port)):
        _tc(*end, "add", "root", *tbf(host.link))


def _delay(host: Host) -> bool:
    """Delay what a host sends; whether the kernel can."""
    try:
        netem = ("netem", "delay", f"{host.delay:g}ms")
        _tc(host.namespace, INTERFACE, "add", "parent", "1:1", "handle", "10:", *netem)
    except RuntimeError as error:
        if "unknown" in str(error):
            return False
        raise
    return True


def _take_down(layout: Layout) -> None:
    """Remove all that there is of a layout, and go on where something fails."""
    # a second Ctrl-C must not leave a half of it
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {name: signal.signal(name, signal.SIG_IGN) for name in endings}
    try:
        _end(layout.cgroup_folders, remove=True)
        # the interfaces go with their namespaces
        for namespace in (*(host.namespace for host in layout.hosts), layout.switch):
            with suppress(RuntimeError):
                _ip("netns", "delete", namespace)
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


def _end(cgroups: Sequence[Path], *, remove: bool) -> None:
    """End the processes of cgroups, first with patience and then without, maybe with the cgroups.

    Whatever a host started is in its cgroup, and nothing else is. A process that is just starting
    joins its cgroup before it does anything, or finds it gone and ends.
    """
    begun = time.monotonic()
    told = set[int]()
    while left := [folder for folder in cgroups if _is_left(folder, remove=remove)]:
        seconds = time.monotonic() - begun
        if seconds > 2 * _ENDS_WITHIN:
            print(f"processes in {', '.join(map(str, left))} have not ended", file=sys.stderr)
            return
        running = set[int]().union(*map(_processes, left))
        if seconds > _ENDS_WITHIN:
            _send(running, signal.SIGKILL)
        else:
            _send(running - told, signal.SIGTERM)
        told |= running
        time.sleep(0.05)


def _is_left(folder: Path, *, remove: bool) -> bool:
    """Whether there is something to end in a cgroup, which is removed if it may be."""
    if not remove:
        return bool(_processes(folder))
    with suppress(OSError):
        # it fails as long as a process is there, maybe one that is just ending
        folder.rmdir()
    return folder.exists()


def _processes(folder: Path) -> set[int]:
    """The processes of a cgroup."""
    with suppress(FileNotFoundError):
        return {int(line) for line in (folder / "cgroup.procs").read_text().split()}
    return set()


def _send(processes: set[int], name: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, name)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End the program as the signal says, so that what it set up is taken down."""
    sys.exit(128 + number)


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _tc(namespace: str, interface: str, verb: str, *words: str) -> None:
    _run(["tc", "-n", namespace, "qdisc", verb, "dev", interface, *words])


def _run(command: Sequence[str]) -> None:
    """Run a command; RuntimeError with its own words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def plain(layout: Layout) -> dict[str, Any]:
    """Return a layout as plain data, of which ``Layout.of`` makes it again."""
    return asdict(layout)
