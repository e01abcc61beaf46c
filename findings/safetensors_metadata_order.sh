#!/usr/bin/env bash
# safetensors 0.8.0, numpy 2.4.6
#
# Tensors are written in a fixed order, metadata are not: with several entries, each process writes them in an order of its
# own, so that the same call on the same data gives files of other bytes. It concerns who compares or signs weights by a
# checksum of the file: keep all metadata in one entry, as a text of JSON with sorted keys.
. "$(dirname "$0")/fresh.bash"
install safetensors==0.8.0 numpy==2.4.6

expect "eight entries: all files equal False
one entry: all files equal True" <<'PY'
import subprocess
import sys

WRITE = "import sys, numpy as np; from safetensors.numpy import save; "
WRITE += "sys.stdout.buffer.write(save({'x': np.zeros(3)}, metadata={key: '1' for key in sys.argv[1]}))"


def files(keys):
    return {subprocess.run([sys.executable, "-c", WRITE, keys], capture_output=True, check=True).stdout for _ in range(8)}


print("eight entries: all files equal", len(files("abcdefgh")) == 1)
print("one entry: all files equal", len(files("a")) == 1)
PY
