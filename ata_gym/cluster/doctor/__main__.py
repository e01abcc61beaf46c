"""``python -m ata_gym.cluster.doctor``: the findings as plain lines, where only the base packages are installed."""

from __future__ import annotations

import argparse
import signal
import sys

from ata_gym.cluster.doctor.examination import examine
from ata_gym.cluster.doctor.finding import as_json, exit_code
from ata_gym.utils.signals import outlive_readers


def main() -> int:
    """Examine, print, and return the exit code: 1 if something that is installed is broken, 2 for bad arguments."""
    about = "Say what is installed, which devices, backends and engines work, and what to install for the rest."
    parser = argparse.ArgumentParser(prog="python -m ata_gym.cluster.doctor", description=about)
    parser.add_argument("--ray", action="store_true", help="start a Ray cluster of one processor for a moment")
    parser.add_argument("--address", metavar="HOST:PORT", help="also look at the nodes of this running Ray cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    try:
        findings = examine(given.ray, given.address)
    except ValueError as error:
        parser.error(str(error))
    print(as_json(findings) if given.json else "\n".join(map(str, findings)))
    return exit_code(findings)


if __name__ == "__main__":
    outlive_readers()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes of a trial are ended, too
    sys.exit(main())
