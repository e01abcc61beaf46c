"""Draw how CleanRL's four files learn on five workers, with the lines changed that README.md here shows.

``python notebooks/agents/cleanrl_curves.py CLEANRL`` takes the folder of CleanRL's checkout, trains with each file in
this process, and writes ``notebooks/pictures/cleanrl.png``.
"""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
import time
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch

import ata_policies

HERE = Path(__file__).parent
PICTURE = HERE.parent / "pictures" / "cleanrl.png"
SEEDS = (1, 2)
ROUNDS = 100  # of an episode
LAST = 10  # episodes of a mean
FILES: dict[str, tuple[str, ...]] = {
    "ppo": ("assign", "--total-timesteps", "160000"),
    "ppo_continuous_action": ("shares", "--total-timesteps", "60000"),
    "dqn": ("assign", "--total-timesteps", "160000"),
    "sac_continuous_action": ("shares", "--total-timesteps", "6000", "--learning-starts", "1000"),
}
"""The form of actions of each file, and its options; all else is as the file has it."""


def changed_lines(name: str) -> list[tuple[str, str]]:
    """The lines of a file that the page changes, and what it puts in their place; the page says how many."""
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
    """Keeps how long the rounds of each episode took, and the processor time until then.

    Returns of different agents do not compare: the unit of rewards depends on whom an agent gives tasks first.
    """

    episodes: ClassVar[list[tuple[float, float]]] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        played = super().step(action)
        if played[3]:
            self.episodes.append((played[4]["runtime"] / ROUNDS, time.process_time()))
        return played


def train(cleanrl: Path, name: str, seed: int) -> np.ndarray:
    """Seconds a round and processor time of each episode of a training in this process."""
    action, *options = FILES[name]
    gym.register(f"timed/{action}", lambda: Timed(gym.make(f"ata_gym/TaskAllocation-flat-{action}-v0")))
    Timed.episodes, before = [], (sys.argv, sys.path[:])
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(None):
        script = Path(f"{name}.py")
        script.write_text(changed(cleanrl, name), encoding="utf-8")
        sys.path.insert(0, str(cleanrl))
        sys.argv = [script.name, "--env-id", f"timed/{action}", "--seed", str(seed), "--no-cuda", *options]
        began = time.process_time()
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.argv, sys.path[:] = before
    return np.array(Timed.episodes) - (0.0, began)


def played(policy: str, episodes: int = 64) -> float:
    """Seconds a round of a policy of the zoo."""
    envs: Any = gym.make_vec("ata_gym/TaskAllocation-v0", episodes)
    player: Any = ata_policies.make(policy, envs)
    observation, state = envs.reset(seed=10**6)[0], None
    for _ in range(ROUNDS):
        action, state = player.predict(observation, state)
        observation, _, _, _, info = envs.step(action)
    return float(info["runtime"].mean()) / ROUNDS


def main(cleanrl: Path) -> None:
    """Train with all files and seeds, and draw seconds a round against rounds and against processor time."""
    torch.set_num_threads(1)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for color, name in zip(("tab:blue", "tab:cyan", "tab:orange", "tab:green"), FILES, strict=True):
        for seed in SEEDS:
            seconds, processor = train(cleanrl, name, seed).T
            print(
                f"{name}, seed {seed}: {seconds[-LAST:].mean():.2f} s a round after {processor[-1]:.0f} s", flush=True
            )
            smooth = np.convolve(seconds, np.ones(LAST) / LAST, "valid")
            label = f"{name}.py" if seed == SEEDS[0] else None
            for axis, x in zip(axes, (ROUNDS * np.arange(1, seconds.size + 1), processor), strict=True):
                axis.plot(x[LAST - 1 :], smooth, color=color, label=label)
    for policy, label, style in (("uta", "uniform", ":"), ("default", "the default", "--")):
        level = played(policy)
        print(f"{label}: {level:.2f} s a round")
        for axis in axes:
            axis.axhline(level, color="black", linestyle=style, label=label)
    axes[0].set(xlabel="rounds", ylabel=f"seconds a round, mean of {LAST} episodes", xscale="log", yscale="log")
    axes[1].set(xlabel="seconds of processor time")
    ticks = (8, 10, 15, 20, 30, 40)
    axes[0].set_yticks(ticks, map(str, ticks))
    axes[0].yaxis.set_minor_formatter("")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
