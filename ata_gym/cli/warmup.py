"""``ata-gym warmup``: compile all kernels at once, before the first use of any."""

import sys
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated

import typer

from ata_gym.cli.console import say


def warmup(
    jobs: Annotated[
        int | None, typer.Option(help="Kernels compiled side by side; by default one per processor.")
    ] = None,
) -> None:
    """Compile all kernels now, and not at first use.

    The kernels of all envs and policies are compiled, which takes a minute on one processor, and kept until their code
    changes. Without this command each is compiled when it is first needed: half a minute for the default policies.

    ```
    ata-gym warmup
    ata-gym warmup --jobs 1
    ```
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    from pathlib import Path

    from ata_gym.bench.progress import progress_bars
    from ata_gym.utils.kernels.cache import kept_in
    from ata_gym.utils.validation import whole_number

    processes = None if jobs is None else whole_number("jobs", jobs)
    if (folder := kept_in(Path(__file__))) is None:
        raise ValueError("no folder for compiled kernels can be written: set NUMBA_CACHE_DIR to one that can")
    names, pool = kernels(), ProcessPoolExecutor(processes, get_context("spawn"))
    with pool, progress_bars({"kernels": len(names)}) as progress:
        for done, _ in enumerate(pool.map(compile_kernel, *zip(*names, strict=True)), 1):
            progress("kernels", done)
    say(f"{len(names)} kernels are compiled, and kept in {folder}")


def kernels() -> list[tuple[str, str]]:
    """The module and the name of each kernel of the envs, the theory and the policies."""
    from ata_gym.utils.compiled import Gufunc

    for package in ("ata_gym.envs", "ata_gym.theory", "ata_policies"):
        for found in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(found.name)
    roots = ("ata_gym.envs", "ata_gym.simulation", "ata_gym.theory", "ata_policies")
    ours = [(module, vars(one)) for module, one in sys.modules.items() if module.startswith(roots)]
    held = {id(one): (module, name) for module, of in ours for name, one in of.items() if isinstance(one, Gufunc)}
    return list(held.values())


def compile_kernel(module: str, name: str) -> None:
    """Compile a kernel in this process, or find it compiled."""
    getattr(import_module(module), name).compile()
