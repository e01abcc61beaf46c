"""The text of Megatron-LM: the tables of all ranks, in the forms in which launchers print them."""

import re

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from tests.bench.logs import examples


def changed(folder, change):
    """The example with its text changed."""
    path = examples.megatron(folder)
    path.write_text(change(path.read_text()))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda text: re.sub("^", "[default7]:", text, flags=re.MULTILINE),
        lambda text: re.sub("^", "7: ", text, flags=re.MULTILINE),
        lambda text: re.sub("^", "2025-01-01T00:00:00.123Z stdout F ", text, flags=re.MULTILINE),
        # since Core 0.13 a logger prints the tables
        lambda text: text.replace("times across", "INFO:megatron.core.timers:times across"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "NCCL INFO \x00 \n" * 100 + text,
    ],
)
def test_the_tables_are_read_whatever_prints_them(change, tmp_path):
    log = read_log(changed(tmp_path, change))
    np.testing.assert_allclose(log.seconds, examples.times(), rtol=1e-6)
    assert [*map(int, log.steps)] == [*range(1, examples.STEPS + 1)]


@pytest.mark.parametrize("kept", [0, 5])
def test_tables_are_counted_where_the_lines_of_iterations_are_elsewhere(kept, tmp_path):
    def change(text):
        lines = text.splitlines(keepends=True)
        iterations = [line for line in lines if " iteration " in line]
        # those that are kept come late, after all tables
        return "".join(line for line in lines if line not in iterations) + "".join(
            iterations[len(iterations) - kept :]
        )

    log = read_log(changed(tmp_path, change))
    np.testing.assert_allclose(log.seconds, examples.times(), rtol=1e-6)


def test_a_rank_without_one_of_the_timers_lacks_the_step(tmp_path):
    def change(text):
        head, _, tail = text.rpartition("  backward-compute:\n     rank  0: ")
        return f"{head}  backward-compute:\n     rank  0: 1x{tail}"

    log = read_log(changed(tmp_path, change))
    np.testing.assert_allclose(log.seconds, examples.times()[:-1], rtol=1e-6)
    assert any("lack a worker" in one for one in log.remarks)


def test_an_iteration_that_is_computed_again_counts_once(tmp_path):
    def change(text):
        first, second = text.split(" [2025-01-01 00:00:06]")
        stale = re.sub(r"(rank  \d): [\d.]+", r"\1: 9999.0", first)
        return f"{stale}{first} [2025-01-01 00:00:06]{second}"

    log = read_log(changed(tmp_path, change))
    np.testing.assert_allclose(log.seconds, examples.times(), rtol=1e-6)


def test_timers_that_hold_the_wait_are_refused_with_the_level_that_is_needed(tmp_path):
    path = changed(tmp_path, lambda text: text.replace("-compute:", "-other:"))
    with pytest.raises(ValueError, match=r"forward-backward.*in which ranks wait.*-level 2"):
        read_log(path)
