#!/usr/bin/env bash
# torch 2.13.0
#
# To iterate over a DataLoader draws a number from torch's global generator, even without shuffling, worker processes or a
# sampler that draws. So to read a validation set once more changes every random number of the training that follows; a
# generator of its own, DataLoader(..., generator=torch.Generator()), leaves the global one alone.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6

expect "without a loader 0.4963
after a loader in order 0.0885
after a loader with a generator of its own 0.4963" <<'PY'
import torch
from torch.utils.data import DataLoader


def next_number(**options):
    torch.manual_seed(0)
    if options:
        list(DataLoader(range(4), **options))
    return f"{torch.rand(()).item():.4f}"


print("without a loader", next_number())
print("after a loader in order", next_number(shuffle=False, num_workers=0))
print("after a loader with a generator of its own", next_number(shuffle=False, generator=torch.Generator()))
PY
