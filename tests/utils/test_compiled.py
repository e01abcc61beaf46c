import contextlib
import gc
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from concurrent.futures import Future
from pathlib import Path

import gymnasium as gym
import numba
import numpy as np
import pytest

from ata_gym.utils.compiled import Gufunc, compile_together
from ata_gym.utils.kernels import processes
from ata_gym.utils.kernels.cache import SUMS, kernel_folder
from ata_gym.utils.kernels.identity import identity
from ata_gym.utils.kernels.internals import NEWEST
from ata_policies import load, make, play
from ata_policies.registry import DEFAULTS

SCRIPT = """
import sys
import numba, numpy as np
for _ in range(int(sys.argv[1])):
    # numba counts what a process has compiled, and names kernels by that count
    numba.njit(lambda x: x)(1)
from kernels import least, total
for _ in range(2):
    assert total(np.arange(4.0)) == 6 and least(np.arange(4.0)) == 0
"""
KERNELS = (
    "from ata_gym.typing import Floats\nfrom ata_gym.utils.compiled import kernel\n"
    + "".join(
        f"""
@kernel("(n)->()")
def {name}(x: Floats, out: Floats):
    out[0] = x.{method}()
"""
        for name, method in (("least", "min"), ("total", "sum"))
    )
)


def test_processes_share_a_whole_cache_and_mend_what_is_damaged(tmp_path, monkeypatch):
    """Whatever they compiled before, wherever their source lies, and with a temporary folder each,
    as in containers.
    """
    cache = tmp_path / "cache" / "ata-gym"
    temporary = [tmp_path / f"tmp-{k}" for k in range(3)]
    for folder in (*temporary, tmp_path / "here"):
        folder.mkdir()
    (tmp_path / "here" / "kernels.py").write_text(KERNELS)
    search = os.pathsep.join([str(tmp_path / "here"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": search}
    together = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(k)],
            env={**environment, "TMPDIR": str(temporary[k])},
        )
        for k in range(2)
    ]
    assert [process.wait() for process in together] == [0, 0]

    def kept():
        return {
            folder: {
                path.relative_to(folder): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file()
            }
            for folder in sorted(cache.iterdir())
        }

    def load():
        module = imported(monkeypatch, kernel=KERNELS, kernels="kernels")
        assert (module.total([1.0, 2.0]), module.least([1.0, 2.0])) == (3.0, 1.0)

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary[2]))
    whole = kept()
    inodes = {folder: folder.stat().st_ino for folder in cache.iterdir()}
    assert [folder.name.split("-")[0] for folder in whole] == ["kernels.least", "kernels.total"]
    load()
    assert {folder: folder.stat().st_ino for folder in cache.iterdir()} == inodes
    for harms in (("flip", "cut"), ("remove", "flip")):
        for harm, (folder, files) in zip(harms, whole.items(), strict=True):
            for name, content in files.items():
                middle = len(content) // 2
                if harm == "remove":
                    (folder / name).unlink()
                elif harm == "cut":
                    (folder / name).write_bytes(content[:middle])
                elif name.name != SUMS:
                    flipped = (
                        content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
                    )
                    (folder / name).write_bytes(flipped)
        load()
        for folder, files in kept().items():
            assert files.keys() == whole[folder].keys()
            sums = {line[66:]: line[:64] for line in files.pop(Path(SUMS)).decode().splitlines()}
            assert sums == {
                name.as_posix(): hashlib.sha256(content).hexdigest()
                for name, content in files.items()
            }
    assert not any(list(folder.iterdir()) for folder in temporary)


HELPERS = '''
import numpy as np
from ata_gym.utils.compiled import helper

FACTOR, TABLE = 2.0, np.arange(3.0)

@helper()
def inner(x, more=1.0):
    """Inner."""
    if x > 100.0:
        return inner(x - 100.0)
    return x * FACTOR * 2 + TABLE[1] + more

@helper("nsz")
def outer(x):
    return inner(x)  # a comment

def unused(x):
    return x
'''
KERNEL = '''
import helpers_of_a_test as helpers
from helpers_of_a_test import outer
from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel

def make(offset):
    @kernel("(n)->()")
    def scaled(x: Floats, out: Floats):
        """A kernel."""
        out[0] = outer(x[0]) + offset
    return scaled

scaled = make(1.0)
'''
"""Gives 4 x + 3 for numbers up to 100."""


def imported(
    monkeypatch,
    helpers=HELPERS,
    kernel=KERNEL,
    place="/one/checkout",
    kernels="kernels_of_a_test",
):
    for name, source in (("helpers_of_a_test", helpers), (kernels, kernel)):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, f"{place}/{name}.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("return x * FACTOR", "return x / FACTOR", False),
        ("FACTOR, TABLE = 2.0", "FACTOR, TABLE = 3.0", False),
        ("np.arange(3.0)", "np.arange(4.0)", False),
        ("more=1.0", "more=2.0", False),
        ('helper("nsz")', 'helper("contract")', False),
        ("x[0]) + offset", "x[0]) - offset", False),
        ("make(1.0)", "make(2.0)", False),
        ("return inner(x)", "return (lambda y: inner(y) * FACTOR)(x)", False),
        ('"""Inner."""', '"""Of another text."""\n    # and a comment', True),
        ("  # a comment", "", True),
        ("def unused(x):\n    return x", "", True),
        ("A kernel", "Another text", True),
        ("def make", "\n\ndef make", True),
    ],
)
def test_an_edit_makes_a_kernel_another_one_where_it_changes_numbers(
    monkeypatch,
    before,
    after,
    same,
):
    assert before in HELPERS + KERNEL
    first = identity(imported(monkeypatch).scaled._loop)
    edited = imported(
        monkeypatch,
        HELPERS.replace(before, after),
        KERNEL.replace(before, after),
        "/another/checkout",
    )
    assert (identity(edited.scaled._loop) == first) == same


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return lambda: {folder.name for folder in (tmp_path / "ata-gym").glob("*")}


def test_a_helper_in_another_file_that_was_edited_is_compiled_anew_and_nothing_else(
    monkeypatch,
    folders,
):
    edited = HELPERS.replace("FACTOR, TABLE = 2.0", "FACTOR, TABLE = 3.0")
    for text, result in ((HELPERS, 15.0), (edited, 21.0)):
        for place, anew in (("/one/checkout", True), ("/another", False)):
            module = imported(monkeypatch, text, place=place)
            before = folders()
            assert module.scaled([3.0]) == result
            assert (folders() != before, bool(module.helpers.outer.overloads)) == (anew, anew)


def test_a_constant_that_numba_has_frozen_is_not_kept_under_its_new_value(monkeypatch, folders):
    module = imported(monkeypatch)
    assert module.scaled([3.0]) == 15.0
    before = folders()
    module.helpers.FACTOR = 3.0
    # this process goes on with the helper that it has compiled
    assert module.make(2.0)([3.0]) == 16.0
    assert folders() == before


def test_kernels_of_one_name_and_of_other_settings_of_numba_are_kept_apart(monkeypatch, folders):
    """Also where processes that compiled one of them each gave both the same number, which is in
    their symbols.
    """
    module = imported(monkeypatch)
    for offset, check in ((1.0, None), (2.0, None), (1.0, 1)):
        monkeypatch.setattr(
            "numba.core.bytecode.FunctionIdentity._unique_ids",
            itertools.count(10**6),
        )
        monkeypatch.setattr(numba.config, "BOUNDSCHECK", check)
        assert module.make(offset)([3.0]) == 14.0 + offset
    assert len(folders()) == 3


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL.replace("= outer(", "= helpers.outer("),
        KERNEL.replace("offset):", "offset, outer=helpers.outer):"),
        KERNEL.replace("outer(x[0])", "14.0 * ratio(x[0])").replace(
            "def make",
            """
import numba
ratio = numba.vectorize(lambda x: x / x)
def make""",
        ),
    ],
)
def test_what_cannot_be_told_from_another_is_compiled_and_not_kept(monkeypatch, folders, kernel):
    """A module of a user, a helper in a closure, which numba names anew in each process, and an
    object that is no constant.
    """
    assert imported(monkeypatch, kernel=kernel).scaled([3.0]) == 15.0
    assert not folders()


def test_kernels_are_kept_for_the_user_and_else_beside_the_source(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "user"))
    source = tmp_path / "package" / "kernels.py"
    source.parent.mkdir()
    source.write_text(KERNELS)
    assert kernel_folder(source) == tmp_path / "user" / "ata-gym"
    shutil.rmtree(tmp_path / "user")
    (tmp_path / "user").write_text("no folder")
    assert kernel_folder(source) == tmp_path / "package" / "__pycache__" / "ata-gym"


def test_a_kernel_whose_cache_has_no_place_is_compiled_all_the_same():
    """Source that lies in no file has no place for a cache, just as an installation where nothing
    can be written.
    """
    names = {}
    exec(compile(KERNELS, "<nowhere>", "exec"), names)
    assert names["total"]([[1.0, 2.0], [3.0, 4.0]]).tolist() == [3.0, 7.0]


def test_a_terminal_tells_of_compilation_and_of_what_is_kept_it_tells_nothing(tmp_path):
    pty = pytest.importorskip("pty")
    (tmp_path / "kernels.py").write_text(KERNELS)
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": search}
    outputs = []
    for _ in range(2):
        reader, writer = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "0"],
            stderr=writer,
            env=environment,
        )
        os.close(writer)
        output = b""
        with contextlib.suppress(OSError):  # at last its end of the terminal is closed
            while part := os.read(reader, 1 << 16):
                output += part
        os.close(reader)
        assert process.wait() == 0
        outputs.append(output.decode())
    assert all(
        f"\rata-gym compiles, once on this machine (half a minute): kernel {k}, " in outputs[0]
        for k in (1, 2)
    )
    assert outputs[0].endswith(f"\r{'':78}\r")
    assert outputs[1] == ""


def test_helpers_serve_python_and_other_code_after_kernels_were_compiled_with_less(monkeypatch):
    text = (
        HELPERS + "\n@helper()\ndef third(x):\n    return x + np.take(TABLE, 1) + np.max(TABLE)\n"
    )
    kinds = []
    for newest in (NEWEST, (0, 0)):  # as with a numba that is newer than all that are known
        monkeypatch.setattr("ata_gym.utils.kernels.internals.NEWEST", newest)
        module = imported(monkeypatch, text, KERNEL.replace("outer(x[0])", "helpers.third(x[0])"))
        third = module.helpers.third
        assert module.scaled([3.0]) == third(3.0) + 1.0 == 7.0
        assert numba.njit(lambda x, third=third: third(x) + np.take(np.arange(3.0), 2))(3.0) == 8.0
        kinds += [type(compiled.entry_point).__name__ for compiled in third.overloads.values()]
    assert (kinds, gc.isenabled()) == (["_Helper", "builtin_function_or_method"], True)


@pytest.mark.parametrize(("processes", "ranks"), [(1, 1), (2, 2), (2, 1)])
def test_kernels_that_are_needed_together_are_compiled_in_processes(
    monkeypatch,
    tmp_path,
    folders,
    processes,
    ranks,
):
    broken = '@kernel("(n)->()")\ndef broken(x: Floats, out: Floats):\n    out[0] = x.no_such()\n'
    for name, text in (("first_kernels", KERNELS), ("second_kernels", KERNELS + broken)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # of the processes
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr("ata_gym.utils.compiled.processors", lambda: processes)
    futures = compile_together(["first_kernels", "second_kernels"])
    compiled = [future.result() for future in futures]
    assert (len(compiled), sum(compiled)) == ((5, 4) if processes > ranks else (0, 0))
    assert sum(name.startswith("first_kernels.") for name in folders()) == (
        2 if processes > ranks else 0
    )
    modules = [__import__(name) for name in ("first_kernels", "second_kernels")]
    assert [module.total([1.0, 2.0]) for module in modules] == [3.0, 3.0]
    with pytest.raises(numba.TypingError, match="no_such"):
        modules[1].broken([1.0])


def test_a_kernel_waits_for_the_process_that_compiles_it_and_no_process_compiles_it_again(
    monkeypatch,
):
    module = imported(monkeypatch, kernel=KERNELS, kernels="kernels_in_processes")
    begun, waiting = Future(), Future()
    begun.set_running_or_notify_cancel()
    futures = {"kernels_in_processes:total": begun, "kernels_in_processes:least": waiting}
    monkeypatch.setattr("ata_gym.utils.compiled._in_processes", futures)
    threading.Timer(0.2, begun.set_result, [True]).start()
    assert module.total([1.0, 2.0]) == 3.0
    assert begun.done()
    # no process has begun with this one: it is compiled here, and not there
    assert module.least([1.0, 2.0]) == 1.0
    assert waiting.cancelled()


def test_a_process_that_compiles_starts_no_other_though_a_module_of_kernels_would(
    monkeypatch,
    tmp_path,
):
    """The path may hold what is no text, and the working directory as an empty text."""
    text = (
        "import os\nfrom pathlib import Path\n"
        'Path("imports", str(os.getpid())).touch()\n'
        "from ata_gym.utils.compiled import compile_together\n"
        'begun = compile_together([__name__]) if __name__ != "__main__" else []\n'
    )
    (tmp_path / "kernels_with_a_start.py").write_text(KERNELS + text)
    (tmp_path / "imports").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in ("", tmp_path):
        monkeypatch.syspath_prepend(folder)
    sys.path[0] = tmp_path
    monkeypatch.delitem(sys.modules, "kernels_with_a_start", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # of the processes
    monkeypatch.setattr("ata_gym.utils.compiled.processors", lambda: 2)
    begun = __import__("kernels_with_a_start").begun
    assert [future.result(60.0) for future in begun] == [True, True]
    assert len([*(tmp_path / "imports").iterdir()]) <= 1 + 2


def test_a_process_that_has_compiled_ends_though_a_fork_of_this_one_holds_its_pipe(monkeypatch):
    started = []
    start = processes._start

    def start_and_copy():
        child = start()
        started.append((child, os.dup(child.stdin.fileno())))
        return child

    monkeypatch.setattr(processes, "_start", start_and_copy)
    (future,) = processes.compile_in_processes(["ata_gym.simulation.keys:_derive_key"], 1).values()
    try:
        assert future.result(60.0)
        ((child, _),) = started
        child.wait(30.0)
    finally:
        for _, pipe in started:
            os.close(pipe)


@pytest.mark.parametrize("name", DEFAULTS.values())
def test_a_default_names_modules_of_kernels_that_it_plays_with(monkeypatch, name):
    """In a world in which levels move, so that the network decides some rounds, too."""
    called = set()
    call = Gufunc.__call__
    monkeypatch.setattr(
        Gufunc,
        "__call__",
        lambda gufunc, *arrays: called.add(gufunc._loop.__module__) or call(gufunc, *arrays),
    )
    policy = make(name, env := gym.make(load(name).env_id, scenario="changing-correlated"))
    list(itertools.islice(play(policy, env, 0), 300))
    assert set() < set(policy.kernels) <= called


LACKING = """
import importlib, sys, types
import numba, numpy as np
whole = importlib.import_module
def part(module, package=None):
    lacking = {place.partition(":")[2] for place in sys.argv[1:] if place.startswith(f"{module}:")}
    names = vars(whole(module, package))
    return types.SimpleNamespace(**{name: names[name] for name in names.keys() - lacking})
importlib.import_module = part
from kernels_of_a_test import scaled
print(scaled(np.array([3.0])), scaled.kept)
"""


@pytest.mark.parametrize(
    ("lacking", "kept"),
    [
        (["numba.core.compiler_lock:global_compiler_lock"], True),
        (
            [
                "numba.core.lowering:BaseLower",
                "numba.core.cpu:CPUContext",
                "numba.core.dispatcher:_DispatcherBase",
            ],
            True,
        ),
        (["numba.core.caching:FunctionCache"], False),
        (["numba.core.dispatcher:Dispatcher"], False),
    ],
)
def test_kernels_have_the_same_results_where_numba_lacks_what_is_not_public(
    tmp_path,
    lacking,
    kept,
):
    (tmp_path / "helpers_of_a_test.py").write_text(HELPERS)
    (tmp_path / "kernels_of_a_test.py").write_text(KERNEL)
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": search}
    command = [sys.executable, "-c", LACKING, *lacking]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "15.0 True\n"
    assert (tmp_path / "cache" / "ata-gym").exists() == kept


def test_a_kernel_whose_annotation_stands_for_no_dtype_is_refused_by_name(monkeypatch):
    text = KERNEL.replace(
        "import Floats",
        "import Floats\nimport numpy as np\nfrom numpy.typing import NDArray",
    )
    with pytest.raises(
        TypeError,
        match=r"scaled: x is .*int16.*, and a kernel takes the arrays of ata_gym.typing",
    ):
        imported(monkeypatch, kernel=text.replace("x: Floats", "x: NDArray[np.int16]"))
