"""``ata-gym warmup``: compile all kernels at once, before the first use of any."""

import sys
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated

import typer

from ata_gym.cli.console import say


def warmup(
    jobs: Annotated[
        int | None,
        typer.Option(help="Kernels compiled side by side; by default one per processor."),
    ] = None,
) -> None:
    """Compile all kernels now, and not at first use.

    The kernels of all envs and policies are compiled, which takes a minute on one processor, and
    kept until their code changes. Without this command each is compiled when it is first needed: 15
    to 30 seconds for a default policy.

    ```
    ata-gym warmup
    ata-gym warmup --jobs 1
    ```
    """
    from concurrent.futures import as_completed
    from pathlib import Path

    from ata_gym.bench.runner.progress import progress_bars
    from ata_gym.utils.extras import load_object
    from ata_gym.utils.kernels.cache import kernel_folder
    from ata_gym.utils.kernels.processes import compile_in_processes
    from ata_gym.utils.process.machine import processors
    from ata_gym.utils.validation import whole_number

    if jobs is None:
        processes = processors()
    else:
        processes = whole_number("jobs", jobs)
    folder = kernel_folder(Path(__file__))
    if folder is None:
        raise ValueError(
            "no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one that can",
        )
    names = kernels()
    with progress_bars({"kernels": len(names)}) as progress:
        done = 0
        for future in as_completed(compile_in_processes(names, processes).values()):
            done += future.result()
            progress("kernels", done)
    if done < len(names):
        raise ValueError(
            f"{len(names) - done} of {len(names)} kernels are not compiled: ata-gym doctor looks"
            " for reasons",
        )
    if lost := sum(not load_object("kernel", name).kept for name in names):
        raise ValueError(
            f"{lost} of {len(names)} kernels could not be kept in {folder}: make room there, or set"
            " NUMBA_CACHE_DIR to another folder",
        )
    say(f"{len(names)} kernels are compiled, and kept in {folder}")


def kernels() -> list[str]:
    """The kernels of the envs, the theory and the policies: ``module:name``."""
    from ata_gym.utils.compiled import kernels_in

    # a kernel is known once its module is imported

    for package in ("ata_gym.envs", "ata_gym.theory", "ata_policies"):
        for module_info in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module_info.name)
    roots = ("ata_gym.envs", "ata_gym.simulation", "ata_gym.theory", "ata_policies")
    return [*kernels_in([module for module in sys.modules if module.startswith(roots)])]
