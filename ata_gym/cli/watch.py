"""``ata-gym watch``: what the rounds of several policies look like, side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import say, say_files
from ata_gym.utils.files.atomic import check_place

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType

    from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
    from ata_gym.envs.rendering.timeline import Timeline

WATCHED = "uta,gta,ata-empirical-icml,default"
"""An even share, all workers at once, the published policy and ours."""

_ROUND_COLUMNS = 80
"""Columns of a round."""

_GAP_COLUMNS = 2
"""Columns between two rounds."""

_OTHER_LINES = 7
"""Lines of a round beside the lines of its workers."""

_OTHER_LINES_BRIEF = 3
"""The same where a round is shown in brief."""


def watch(
    scenario: Annotated[
        str,
        options.named_scenario(help="A named scenario; `ata-gym scenarios` lists them."),
    ] = "five-workers",
    policies: options.Policies = WATCHED,
    rounds: Annotated[int, typer.Option(help="Rounds to play.")] = 200,
    seed: Annotated[
        int,
        typer.Option(help="The seed of the episode, the same for all policies."),
    ] = 0,
    budget: options.Budget = None,
    data: options.Data = None,
    speed: Annotated[
        float | None,
        typer.Option(help="Rounds per second, where a terminal shows them."),
    ] = None,
    out: options.OutForPictures = None,
) -> None:
    """Show who works, who waits, and whose work is not used.

    Policies play the same workers, side by side. In a terminal the rounds pass by; elsewhere the
    last round of each policy is written. Each policy plays its own env, and `default` the default
    of TaskAllocation; a worker's j-th task has the same noise for all of them. With `--out` there
    is a picture instead, `who-waits`, as PNG and SVG: a typical round of each policy, with averages
    over the second half of the rounds.

    ```
    ata-gym watch
    ata-gym watch changing-spot --policies ata,race,dispatch --rounds 500
    ata-gym watch five-workers --rounds 2000 --out notebooks/pictures
    ```
    """
    from ata_gym.bench.studies.side_by_side.play import WatchedPolicy
    from ata_gym.envs.rendering.renderer import FRAMES_PER_SECOND
    from ata_gym.envs.rendering.text import as_text
    from ata_gym.scenarios import resolve
    from ata_gym.scenarios.recorded import find_scenario
    from ata_gym.utils.errors import named_failure
    from ata_gym.utils.validation import real, whole_number

    resolved = resolve(find_scenario(scenario, data), budget=budget)
    whole_number("rounds", rounds)
    if out is not None:
        check_place(out / "who-waits.png")
    if speed is None:
        speed = FRAMES_PER_SECOND
    pause = 1.0 / real("speed", speed)
    watched = []
    for name in options.policy_names(policies):
        with named_failure(f"the policy {name}"):
            watched.append(WatchedPolicy(name, resolved, rounds, seed))
    about = (
        f"{resolved.name or scenario}: {resolved.pool.n:,} workers, {resolved.budget:,} results in"
        " a round"
    )
    if out is None and sys.stdout.isatty():
        _show_live(watched, about, pause)
    else:
        _play_all(watched, rounds)
        if out is None:
            say(about)
            for policy in watched:
                say(f"\n{policy.name}\n{as_text(policy.recent[-1])}")
    if out is not None:
        from ata_gym.bench.studies.side_by_side import pictures

        say_files("pictures", pictures.draw(watched, resolved, out / "who-waits"))
    _say_totals(watched)


def _play_all(policies: Sequence[WatchedPolicy], rounds: int) -> None:
    from ata_gym.bench.runner.progress import progress_bars
    from ata_gym.utils.errors import named_failure

    with progress_bars(dict.fromkeys((policy.name for policy in policies), rounds)) as progress:
        for policy in policies:
            for count in range(1, rounds + 1):
                with named_failure(f"the policy {policy.name}"):
                    policy.play_round()
                progress(policy.name, count)


def _show_live(policies: Sequence[WatchedPolicy], about: str, pause: float) -> None:
    """Play all rounds, and show each with a pause in seconds after it."""
    from rich.console import Console
    from rich.live import Live

    from ata_gym.utils.errors import named_failure

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for _ in range(policies[0].rounds):
            rounds = []
            for policy in policies:
                with named_failure(f"the policy {policy.name}"):
                    rounds.append(policy.play_round())
            live.update(_screen(policies, rounds, about, console.size), refresh=True)
            sleep(pause)


def _screen(
    policies: Sequence[WatchedPolicy],
    rounds: Sequence[Timeline],
    about: str,
    size: ConsoleDimensions,
) -> RenderableType:
    """The round of each policy under its name, as many in a line as there is room for."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    from ata_gym.envs.rendering.text import MAX_WORKERS, as_text, legend

    per_line = max(1, size.width // (_ROUND_COLUMNS + _GAP_COLUMNS))
    # the lines that a round may have: the rounds fill len(policies) / per_line lines, rounded up
    height = (size.height - 2) // -(-len(policies) // per_line)
    brief = height - _OTHER_LINES < min(
        MAX_WORKERS, max(int(timeline.present.sum()) for timeline in rounds)
    )
    if brief:
        separator = "  "
        other_lines = _OTHER_LINES_BRIEF
        about += f"    {legend()}"
    else:
        separator = "\n"
        other_lines = _OTHER_LINES
    workers = max(1, min(MAX_WORKERS, height - other_lines))
    texts = [
        Text.assemble(
            (policy.name, "bold"),
            separator,
            as_text(timeline, workers, brief),
            "\n",
            no_wrap=True,
        )
        for policy, timeline in zip(policies, rounds, strict=True)
    ]
    if per_line == 1:
        return Group(Text(about), *texts)
    return Group(Text(about), Columns(texts, width=_ROUND_COLUMNS, padding=(0, _GAP_COLUMNS)))


def _say_totals(policies: Sequence[WatchedPolicy]) -> None:
    from ata_gym.envs.rendering.timeline import number

    settled = policies[0].settled
    say(
        f"\naverages of rounds {settled.start + 1:,} to {len(policies[0].times):,}, and the runtime"
        " of all",
    )
    say(
        f"{'policy':<24} {'round time':>10} {'worker time':>11} {'not used':>11} {'runtime':>10}",
    )
    for policy in policies:
        time, work, share = policy.averages()
        runtime = number(sum(policy.times))
        say(
            f"{policy.name:<24} {number(time):>10} {number(work):>11} {f'{100 * share:.1f} %':>11}"
            f" {runtime:>10}",
        )
