import os
import subprocess
import sys

import pytest

from ata_gym.utils.kernels.cache import SUMS

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


@pytest.fixture
def run(tmp_path):
    """Start a process that calls both kernels, with a temporary folder of its own, on one cache."""
    (tmp_path / "kernels.py").write_text(KERNELS)

    def start(compiled_before=0):
        temporary = tmp_path / f"tmp-{len(list(tmp_path.iterdir()))}"
        temporary.mkdir()
        paths = {"NUMBA_CACHE_DIR": tmp_path / "cache", "PYTHONPATH": tmp_path, "TMPDIR": temporary}
        environment = {**os.environ, **{name: str(path) for name, path in paths.items()}}
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(compiled_before)], env=environment)

    return start


def kernels(tmp_path):
    """The folders of kernels in the cache, and the files of each."""
    return {
        folder: {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "cache" / "ata-gym").iterdir()
    }


def test_processes_that_fill_the_cache_together_leave_it_whole(tmp_path, run):
    """Also where each has a temporary folder of its own, as under a scheduler or in containers."""
    together = [run(count) for count in range(6)]
    assert [process.wait() for process in together] == [0] * 6
    assert run().wait() == 0
    assert [folder.name.split("-")[0] for folder in sorted(kernels(tmp_path))] == ["kernels.largest", "kernels.total"]
    assert not any(list(temporary.iterdir()) for temporary in tmp_path.glob("tmp-*"))


def test_a_later_process_compiles_nothing(tmp_path, run):
    assert run().wait() == 0
    before = {folder: folder.stat().st_ino for folder in kernels(tmp_path)}
    assert run(3).wait() == 0
    assert {folder: folder.stat().st_ino for folder in kernels(tmp_path)} == before


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_cache_is_noticed_and_made_again(tmp_path, run, damage):
    assert run().wait() == 0
    folders = kernels(tmp_path)
    for folder, files in folders.items():
        for name, content in files.items():
            path = folder / name
            if damage == "flip" and path.name != SUMS:
                middle = len(content) // 2
                path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
            elif damage == "cut":
                path.write_bytes(content[: len(content) // 2])
            elif damage == "remove":
                path.unlink()
    assert run(2).wait() == 0
    for folder, files in kernels(tmp_path).items():
        assert files.keys() == folders[folder].keys()


def test_a_kernel_whose_cache_has_no_place_is_compiled_all_the_same():
    """Source that lies in no file has no place for a cache, just as an installation where nothing can be written."""
    names = {}
    exec(compile(KERNELS, "<nowhere>", "exec"), names)
    assert names["total"]([[1.0, 2.0], [3.0, 4.0]]).tolist() == [3.0, 7.0]
