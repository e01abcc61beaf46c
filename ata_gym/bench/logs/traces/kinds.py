"""What an event of a trace is: a step, an operation, a kernel, communication, or a wait.

It is told by the category and the name that the profiler and the libraries give, never by a part
of a name, since scripts and functions of users have names, too.
"""

import re
from enum import IntEnum, auto

STEP_NAME = re.compile(r"ProfilerStep\s?#([0-9]{1,18})")


class Kind(IntEnum):
    """The kinds of events."""

    OTHER = 0
    """Nothing that counts, such as the copies of annotations on a device."""
    STEP = auto()
    """A step, on the thread of the training loop."""
    DEVICE_STEP = auto()
    """The copy of a step on a device; it counts where there is no other."""
    MARK = auto()
    """An annotation or a frame of Python: it shows when a thread goes on, but not what it does."""
    OPERATION = auto()
    """An operation on the host."""
    BACKWARD = auto()
    """An operation of the backward pass, which may have a thread of its own."""
    READ = auto()
    """An operation that reads a number from a device: it waits for the device, if there is one."""
    CALL = auto()
    """A call of a collective on the host, which returns before the collective is done."""
    HOST_COLLECTIVE = auto()
    """A collective of gloo, MPI or UCC, from when a thread took it up to when it is done."""
    LAUNCH = auto()
    """A call that puts work on a device."""
    SYNCHRONIZATION = auto()
    """A call that waits for a device."""
    KERNEL = auto()
    """Computation on a device."""
    COPY = auto()
    """A copy on a device."""
    DEVICE_COLLECTIVE = auto()
    """A kernel that communicates."""


OPERATIONS = (Kind.OPERATION, Kind.BACKWARD, Kind.READ)
"""The kinds that are work of the host, where there is no device to wait for."""

DEVICE_WORK = (Kind.KERNEL, Kind.COPY, Kind.DEVICE_COLLECTIVE)
"""The kinds of what a device does."""

_CALL = re.compile(
    r"(c10d|c10d_functional|_c10d_functional|_c10d_functional_autograd|symm_mem)::"
    r"|(nccl|rccl|xccl|hccl):|record_param_comms"
)
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):")
_READS = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"}
_BACKWARD_START = "autograd::engine::evaluate_function"
_SYNCHRONIZATION = re.compile(r"\w*Synchronize(_v\d+)?")
_DEVICE_COLLECTIVE = re.compile(
    # a kernel of C++ may begin with what it returns and where it lives
    r"(void )?([a-z0-9_]+::)*"
    r"((nccl|rccl|msccl|hccl|mccl|xccl|nvshmem|oneccl)(_|dev|kernel|all|reduce|broad|send)"
    r"|cross_device_reduce|multimem_|(one|two)_?shot_?all"
    r"|[a-z0-9_]*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)[a-z0-9_]*kernel)",
    re.IGNORECASE,
)
_CATEGORIES = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
"""The categories of old versions of the profiler, in lower case, by what they are called now."""
_CATEGORIES_OF_CALLS = {
    *(
        "cuda_runtime",
        "cuda_driver",
        "hip_runtime",
        "xpu_runtime",
        "mtia_runtime",
        "privateuse1_runtime",
    )
}


def kind_of(category: str, name: str) -> Kind:
    """Return the kind of an event that took time."""
    category = category.lower()
    category = _CATEGORIES.get(category, category)
    if STEP_NAME.fullmatch(name):
        return Kind.DEVICE_STEP if category.startswith("gpu_") else Kind.STEP
    if category == "kernel":
        return Kind.DEVICE_COLLECTIVE if _DEVICE_COLLECTIVE.match(name) else Kind.KERNEL
    if category in ("gpu_memcpy", "gpu_memset"):
        return Kind.COPY
    if category in _CATEGORIES_OF_CALLS:
        return Kind.SYNCHRONIZATION if _SYNCHRONIZATION.fullmatch(name) else Kind.LAUNCH
    if category in ("cpu_op", "user_annotation") and _HOST_COLLECTIVE.match(name):
        return Kind.HOST_COLLECTIVE
    if category == "cpu_op":
        return _kind_of_operation(name)
    if category in ("user_annotation", "python_function"):
        return Kind.MARK
    return Kind.OTHER


def _kind_of_operation(name: str) -> Kind:
    if _CALL.match(name):
        return Kind.CALL
    if name in _READS:
        return Kind.READ
    if name.startswith(_BACKWARD_START):
        return Kind.BACKWARD
    return Kind.OPERATION
