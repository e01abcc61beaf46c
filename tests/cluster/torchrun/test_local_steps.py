"""The script of local steps under torchrun: what is averaged, and what the allocation gains."""

import csv
import runpy
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

from ata_gym.training import make_problem  # noqa: E402
from tests.cluster.torchrun.processes import as_torchrun  # noqa: E402
from tests.cluster.torchrun.test_example import run_script  # noqa: E402
from tests.waiting import PATIENCE  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "local_steps.py"


def play(folder, *options):
    """The lines of losses.csv by the way."""
    folder.mkdir()
    with as_torchrun(run_script, SCRIPT, folder, "--seeds", "1", *options, size=2) as running:
        running.result(PATIENCE)
    with (folder / "local-steps" / "losses.csv").open() as file:
        lines = list(csv.DictReader(file))
    return {way: list(group) for way, group in groupby(lines, key=lambda line: line["way"])}


def test_replicas_count_as_the_script_says():
    factors = runpy.run_path(str(SCRIPT))["factors"]
    rng = np.random.default_rng(0)
    for replicas in (1, 2, 5):
        steps = rng.integers(1, 9, replicas)
        # Where each step of replica i moves it by g_i, it has moved by steps_i g_i.
        gradients = rng.normal(size=(replicas, 3))
        moved = steps[:, None] * gradients
        mean, by_steps, normalised = (
            np.array(factors(average, steps.tolist())) @ moved
            for average in ("mean", "steps", "normalised")
        )
        np.testing.assert_allclose(mean, np.mean(moved, 0))
        np.testing.assert_allclose(by_steps, steps**2 @ gradients / steps.sum())
        # The same for every split of the steps.
        np.testing.assert_allclose(normalised, steps.mean() * gradients.mean(0))
        equal = [factors(average, [4] * replicas) for average in ("mean", "steps", "normalised")]
        np.testing.assert_allclose(equal, 1.0 / replicas)


@pytest.mark.parametrize("skewed", [False, True])
def test_with_one_step_each_it_is_the_training_of_one_process(tmp_path, skewed):
    options = ("--emulate", "1,2", "--budget", "2", "--seconds", "9", "--samples", "4")
    played = play(tmp_path / "run", *options, *["--skewed"] * skewed)
    digits = make_problem("digits")
    torch.manual_seed(0)
    model = digits.build()
    every = digits.training_samples(range(digits.size))
    parts = [np.arange(digits.size)] * 2
    if skewed:
        parts = np.array_split(np.argsort(every[1].numpy(), kind="stable"), 2)
    generators = [np.random.default_rng([0, rank, 0]) for rank in range(2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in played["even, mean"]:
        losses.append(float(digits.loss(model, every).mean().detach()))
        drawn = [rng.choice(part, 4) for rng, part in zip(generators, parts, strict=True)]
        optimizer.zero_grad()
        digits.loss(model, digits.training_samples(np.concatenate(drawn))).mean().backward()
        optimizer.step()
    assert len(played) == 4
    assert len(losses) > 3
    for lines in played.values():
        np.testing.assert_allclose([float(line["loss"]) for line in lines], losses, rtol=1e-4)


def test_the_allocation_has_more_rounds_in_the_same_time_and_the_same_command_the_same_numbers(
    tmp_path,
):
    options = ("--emulate", "0.01,0.04", "--budget", "10", "--seconds", "1.5", "--samples", "4")
    first, second = (play(tmp_path / name, *options) for name in ("first", "second"))
    assert first == second
    ways = ["even, mean", "allocated, mean", "allocated, steps", "allocated, normalised"]
    assert list(first) == ways
    even, *allocated = (len(lines) for lines in first.values())
    # An even split takes 0.2 s in the mean, and the best one 0.08 s.
    assert min(allocated) > 1.5 * even
    assert "| even, mean | " in (tmp_path / "first" / "said-0").read_text()
