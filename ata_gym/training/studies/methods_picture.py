"""Loss curves of training methods: a panel for each family and clock, with one policy beside them in grey."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ata_gym.bench.report import style
from ata_gym.training.methods.run import find_method
from ata_gym.training.studies.curves import CLOCKS, finish

_GREY = {"color": "#9A9A9A", "linestyle": "solid", "linewidth": 3.0, "zorder": 0}

_HIGHEST = 2.0
"""The panels end at the reference's highest loss times this: methods that diverge leave them."""


def draw_methods(curves: pl.DataFrame, reference: pl.DataFrame, label: str, title: str, stem: Path) -> list[Path]:
    """Draw the loss of methods against runtime and worker time, as PNG and SVG.

    ``curves`` are of ``comparison.lay``, ``reference`` is one policy's part of ``curves.lay``.
    """
    families: dict[str, list[str]] = {}
    for name in curves["policy"].unique(maintain_order=True):
        families.setdefault(find_method(name.partition("=")[0]).family, []).append(name)
    every = pl.concat([reference, curves], how="diagonal")
    with style.figure(1.2 + 2.9 * len(families), 6.4) as picture:
        grid = picture.subplots(2, len(families), sharex="row", sharey=True, squeeze=False)
        for clock, panels in zip(CLOCKS, grid, strict=True):
            for names, axes in zip(families.values(), panels, strict=True):
                axes.plot(
                    reference[clock].to_numpy(), reference["loss"].to_numpy(), label=reference["policy"][0], **_GREY
                )
                for place, (name, look) in enumerate(style.lines(names).items()):
                    mine, colour = curves.filter(policy=name), style.OKABE_ITO[place % len(style.OKABE_ITO)]
                    axes.plot(mine[clock].to_numpy(), mine["loss"].to_numpy(), label=name, **look | {"color": colour})
                finish(axes, every[clock], every["loss"])
                axes.set_xlabel(clock.replace("_", " "))
            panels[0].set_ylabel(label)
        for family, axes in zip(families, grid[0], strict=True):
            axes.set_ylim(top=_HIGHEST * float(reference["loss"].to_numpy().max()))
            look = {"size": 10, "weight": "bold"}
            axes.legend(
                title=family, title_fontproperties=look, alignment="left", fontsize=8.5, handlelength=2.2,
                loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2,
            )  # fmt: skip
        return style.save(picture, stem, title)
