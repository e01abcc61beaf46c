"""Draw how CleanRL's four files learn on five workers, with the lines changed that README.md here
shows.

``python notebooks/agents/cleanrl_curves.py CLEANRL``, with the folder of its checkout, writes
``pictures/cleanrl.png``.
"""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
import time
from contextlib import chdir, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch

import ata_policies
from ata_policies.steps import play

HERE = Path(__file__).parent
SEEDS = (1, 2)
ROUNDS = 100  # of an episode
LAST = 10  # episodes of a mean
EPISODES: list[tuple[float, float]] = []  # how long a round took, and the processor time at the end
FILES: dict[str, tuple[str, ...]] = {
    "ppo": ("assign", "--total-timesteps", "100000"),
    "ppo_continuous_action": ("shares", "--total-timesteps", "60000"),
    "dqn": ("assign", "--total-timesteps", "100000"),
    "sac_continuous_action": ("shares", "--total-timesteps", "4000", "--learning-starts", "1000"),
}
"""The form of actions of each file, and its options; all else is as the file has it."""


def changed_lines(name: str) -> list[tuple[str, str]]:
    """The lines of a file that the page changes, and what it puts in their place; the page says how
    many.
    """
    page = (HERE / "README.md").read_text(encoding="utf-8")
    title = rf"^In [^\n]*`{name}\.py`[^\n]*, (\d) lines:\n\n```diff\n(.*?)^```"
    ((count, block),) = re.findall(title, page, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^-(.*\n)\+(.*\n)", block, re.MULTILINE)
    assert len(lines) == int(count)
    return lines


def changed(cleanrl: Path, name: str) -> str:
    """The text of a file with the changed lines of the page."""
    text = (cleanrl / "cleanrl" / f"{name}.py").read_text(encoding="utf-8")
    for old, new in changed_lines(name):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


class Timed(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps what ``EPISODES`` holds."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = super().step(action)
        if result[3]:
            EPISODES.append((result[-1]["runtime"] / ROUNDS, time.process_time()))
        return result


def train(cleanrl: Path, name: str, seed: int) -> Any:
    """Seconds a round, and processor time, of the episodes of a training in this process."""
    action, *options = FILES[name]
    gym.registry.pop("timed", None)
    gym.register("timed", lambda: Timed(gym.make(f"ata_gym/TaskAllocation-flat-{action}-v0")))
    EPISODES.clear()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(None):
        Path(f"{name}.py").write_text(changed(cleanrl, name), encoding="utf-8")
        sys.argv = [f"{name}.py", "--env-id", "timed", "--seed", str(seed), "--no-cuda", *options]
        began = time.process_time()
        runpy.run_path(sys.argv[0], run_name="__main__")
    return np.array(EPISODES).T - [[0.0], [began]]


def played(policy: str) -> float:
    """Seconds a round of a policy of the zoo."""
    envs: Any = gym.make_vec("ata_gym/TaskAllocation-v0", 64)
    player: Any = ata_policies.make(policy, envs)
    *_, last = islice(play(player, envs, seed=10**6), ROUNDS)
    return float(last.info["runtime"].mean()) / ROUNDS


def main(cleanrl: Path) -> None:
    """Train with all files and seeds, and draw seconds a round against rounds and against processor
    time.
    """
    torch.set_num_threads(1)
    sys.path.insert(0, str(cleanrl))
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for color, name in zip(("tab:blue", "tab:cyan", "tab:orange", "tab:green"), FILES, strict=True):
        for seed in SEEDS:
            seconds, processor = train(cleanrl, name, seed)
            smooth = np.convolve(seconds, np.ones(LAST) / LAST, "valid")
            label = f"{name}.py"
            if seed != SEEDS[0]:
                label = f"_{label}"  # a line without a place in the legend
            print(
                f"{name}, seed {seed}: {smooth[-1]:.2f} s a round after {processor[-1]:.0f} s",
                flush=True,
            )
            for axis, x in zip(
                axes,
                (ROUNDS * np.arange(1, seconds.size + 1), processor),
                strict=True,
            ):
                axis.plot(x[LAST - 1 :], smooth, color=color, label=label)
    for policy, label, style in (("uta", "uniform", ":"), ("default", "the default", "--")):
        level = played(policy)
        print(f"{label}: {level:.2f} s a round")
        for axis in axes:
            axis.axhline(level, color="black", linestyle=style, label=label)
    axes[0].set(
        xlabel="rounds",
        ylabel=f"seconds a round, mean of {LAST} episodes",
        xscale="log",
        yscale="log",
    )
    axes[1].set(xlabel="seconds of processor time")
    axes[0].set_yticks([8, 10, 15, 20, 30], ["8", "10", "15", "20", "30"])
    axes[0].yaxis.set_minor_formatter("")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(HERE.parent / "pictures" / "cleanrl.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
