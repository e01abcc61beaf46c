#!/usr/bin/env bash
# numpy 2.4.6 on x86-64 with AVX-512; elsewhere the script says that it cannot show it
#
# With one wheel, seed and input, the last bits of exp, log, log1p and cbrt, and the order of ties in argsort and argpartition,
# depend on whether the processor has AVX-512; sum and sin do not. Here it is switched off for one of two processes, as on a
# processor that lacks it. So a simulation that takes logarithms, and a rule that breaks ties by argsort, are reproducible to
# the byte on one kind of processor only; kind="stable" settles ties.
. "$(dirname "$0")/fresh.bash"
install numpy==2.4.6
export PROGRAM='
import hashlib

import numpy as np

x = 10 * np.random.default_rng(0).random(100_000)
ties = np.random.default_rng(0).integers(0, 50, 1000)
results = {f.__name__: f(x) for f in (np.exp, np.log, np.log1p, np.cbrt, np.sin, np.sum)}
results |= {"argsort": np.argsort(ties), "argpartition": np.argpartition(ties, 100)}
results["stable"] = np.argsort(ties, kind="stable")
for name, result in results.items():
    print(name, hashlib.sha256(result.tobytes()).hexdigest())
'
if ! "$folder/venv/bin/python" -c "
from numpy.lib.introspect import opt_func_info
raise SystemExit('X86_V4' not in str(opt_func_info('^exp\$')))"; then
  echo "not to be seen here: this processor has no AVX-512"
  exit 0
fi

expect "differ: exp log log1p cbrt argsort argpartition
equal: sin sum stable" <<'PY'
import os
import subprocess
import sys


def results(off):
    told = os.environ | {"NPY_DISABLE_CPU_FEATURES": off}
    command = [sys.executable, "-W", "ignore", "-c", os.environ["PROGRAM"]]
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


with_it, without = results(""), results("AVX512_SPR AVX512_ICL X86_V4")
print("differ:", *(name for name in with_it if with_it[name] != without[name]))
print("equal:", *(name for name in with_it if with_it[name] == without[name]))
PY
