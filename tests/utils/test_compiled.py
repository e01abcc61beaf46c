import os
import subprocess
import sys

SCRIPT = """
import sys
import numba, numpy as np
for _ in range(int(sys.argv[1])):
    numba.njit(lambda x: x)(1)  # numba counts what a process has compiled, and names kernels by that count
from kernels import largest, total
for _ in range(2):
    assert total(np.arange(4.0)) == 6 and largest(np.arange(4.0)) == 3
"""
KERNELS = """
from ata_gym.utils.compiled import gufunc

@gufunc("void(float64[:], float64[:])", "(n)->()")
def total(x, out):
    out[0] = x.sum()

@gufunc("void(float64[:], float64[:])", "(n)->()")
def largest(x, out):
    out[0] = x.max()
"""


def test_processes_that_fill_the_cache_together_leave_it_whole(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def start(compiled_before):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(compiled_before)], env=environment)

    together = [start(count) for count in range(4)]
    assert [process.wait() for process in together] == [0] * 4
    assert start(0).wait() == 0


def test_a_kernel_whose_cache_has_no_place_is_compiled_all_the_same():
    """Source that lies in no file has no place for a cache, just as an installation where nothing can be written."""
    names = {}
    exec(compile(KERNELS, "<nowhere>", "exec"), names)
    assert names["total"]([[1.0, 2.0], [3.0, 4.0]]).tolist() == [3.0, 7.0]
