"""The command ``ata-gym``, also ``python -m ata_gym``."""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec

from ata_gym.utils.extras import MissingExtraError, require
from ata_gym.utils.process.signals import ignore_closed_output, quiet_start, raising, whole_output

_GARBAGE = (50_000, 20, 50)
"""How often Python looks for garbage; by its own numbers it takes an eighth of a short command."""


def main() -> None:
    """Run the command line.

    A missing extra is one sentence on stderr and exit code 1, without a traceback. The sentence
    names the command that lists what else is missing; that command needs no extra.
    """
    ignore_closed_output()
    gc.set_threshold(*_GARBAGE)
    try:
        with quiet_start():
            for module in ("typer", "rich", "polars", "matplotlib", "msgspec"):
                # a module is looked for and not imported, so that --help is quick
                if find_spec(module) is None:
                    if sys.argv[1:] in (["doctor"], ["doctor", "--json"]):
                        with raising(), whole_output("ata-gym"):
                            sys.exit(
                                import_module("ata_gym.cluster.doctor").main("--json" in sys.argv),
                            )
                    require(module, extra="bench", purpose="The command ata-gym")
            from ata_gym.cli import app  # noqa: PLC0415 - it imports the modules checked above

            # a command itself reports what went wrong; --help and --version are not commands
            with whole_output("ata-gym"):
                app(prog_name="ata-gym")
    except MissingExtraError as error:
        sys.exit(f"{error} (ata-gym doctor lists what else is missing)")


if __name__ == "__main__":
    main()
