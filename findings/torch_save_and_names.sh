#!/usr/bin/env bash
# torch 2.13.0
#
# torch.save of one object gives other bytes under another name: the name of the file, without its ending, is the folder
# inside of the archive, and each entry has it. A checksum over a checkpoint changes where the checkpoint is first written to
# a temporary name and then renamed. A buffer in memory (io.BytesIO), written to the file afterwards, has the same bytes always.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6

expect "two files: same bytes False, first entries one/data.pkl two/data.pkl
two buffers: same bytes True, first entries archive/data.pkl archive/data.pkl" <<'PY'
import io
import zipfile
from pathlib import Path

import torch


def describe(what, contents):
    entries = [zipfile.ZipFile(io.BytesIO(content)).namelist()[0] for content in contents]
    print(f"{what}: same bytes {contents[0] == contents[1]}, first entries {' '.join(entries)}")


weights = {"weight": torch.arange(6.0)}
for name in ("one.pt", "two.pt"):
    torch.save(weights, name)
describe("two files", [Path(name).read_bytes() for name in ("one.pt", "two.pt")])
buffers = [io.BytesIO(), io.BytesIO()]
for buffer in buffers:
    torch.save(weights, buffer)
describe("two buffers", [buffer.getvalue() for buffer in buffers])
PY
