#!/usr/bin/env bash
# torch 2.13.0 on a CPU, numpy 2.4.6
#
# With one seed, the first numbers of torch.randn depend on how many are drawn: up to 15 come from another algorithm than 16
# and more, so that torch.randn(15) and torch.randn(16)[:15] have no number in common. torch.rand has no such step.
# It concerns who splits a batch over workers and expects the noise of the whole: draw the whole batch, or a key for each sample.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6

expect "randn: equal among the first 15 of 15 and of 16: 0; of 16 and of 32: 16
rand: equal among the first 15 of 15 and of 16: 15; of 16 and of 32: 16" <<'PY'
import torch


def equal(draw, short, long):
    torch.manual_seed(0)
    first = draw(short)
    torch.manual_seed(0)
    return int((first == draw(long)[:short]).sum())


for draw in (torch.randn, torch.rand):
    numbers = f"of 15 and of 16: {equal(draw, 15, 16)}; of 16 and of 32: {equal(draw, 16, 32)}"
    print(f"{draw.__name__}: equal among the first 15 {numbers}")
PY
