"""The modules whose gradients a round would leave out or spoil, which are refused by name."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from ata_gym.cluster.torchrun.dtensors import imported_class, is_dtensor, is_instance


def is_special(module: Any) -> bool:
    """Whether a round asks more of a module than its parameters and buffers.

    Most modules have no hooks, and a class of which nothing else is asked.
    """
    return bool(
        module._forward_hooks or module._forward_pre_hooks or _is_special_class(module.__class__)
    )


@cache
def _is_special_class(kind: type) -> bool:
    of_torch = (
        nn.SyncBatchNorm,
        nn.Embedding,
        nn.EmbeddingBag,
        LazyModuleMixin,
        DistributedDataParallel,
    )
    others = (
        imported_class("torch.distributed.fsdp", "FSDPModule"),
        imported_class("torch.distributed.fsdp", "FullyShardedDataParallel"),
        imported_class("deepspeed.runtime.engine", "DeepSpeedEngine"),
    )
    # A class that is none of them now never is, since its bases were imported before.
    return issubclass(kind, (*of_torch, *filter(None, others)))


def has_sparse_gradient(module: nn.Module) -> bool:
    """Whether the gradient of a module's weight is sparse."""
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse


def _is_of_deepspeed(module: Any) -> bool:
    """Whether DeepSpeed sums the gradients of a module, as ``deepspeed.initialize`` lets it do.

    The engine leaves hooks in the module, so that the module without the engine is recognised.
    """
    functions = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    packages = {str(getattr(each, "__module__", "")).partition(".")[0] for each in functions}
    is_engine = is_instance("deepspeed.runtime.engine", "DeepSpeedEngine", module)
    return is_engine or "deepspeed" in packages


def unsupported_parts(module: Any) -> Iterator[tuple[str, str]]:
    """What in a module communicates in a way that a round does not respect, and the cure."""
    if isinstance(module, nn.SyncBatchNorm):
        yield (
            "SyncBatchNorm",
            "use BatchNorm, whose running statistics become the means over all tasks",
        )
    elif isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
        yield (
            f"{type(module).__name__} before its first forward pass",
            "let the model compute one batch on every rank before the first round",
        )
    elif has_sparse_gradient(module) and is_dtensor(module.weight):
        yield f"{type(module).__name__}(sparse=True) with a DTensor", "leave sparse out"
    elif isinstance(module, DistributedDataParallel):
        if module.static_graph:
            yield "DistributedDataParallel(static_graph=True)", "leave static_graph out"
        if module._comm_hooks:
            yield "a communication hook of DistributedDataParallel", "register none"
    elif _is_of_deepspeed(module):
        yield (
            "an engine of DeepSpeed, or its module,",
            "use the module as it was before deepspeed.initialize, with torch's"
            " ZeroRedundancyOptimizer in place of stage 1 of ZeRO, and fully_shard in place of"
            " stages 2 and 3",
        )
    elif is_instance("torch.distributed.fsdp", "FullyShardedDataParallel", module):
        yield "FullyShardedDataParallel", "use fully_shard, or the plain module"
    elif is_instance("torch.distributed.fsdp", "FSDPModule", module):
        state = module._get_fsdp_state()
        policy = state._mp_policy
        dtypes = {parameter.dtype for parameter in module.parameters()}
        # Gradients have the dtype of the policy's parameters, or else of the parameters.
        computed = {policy.param_dtype} - {None} or dtypes
        if policy.reduce_dtype is not None and {policy.reduce_dtype} != computed:
            yield (
                f"MixedPrecisionPolicy(reduce_dtype={policy.reduce_dtype}) of fully_shard",
                "leave reduce_dtype out",
            )
        for group in parameter_groups(module):
            options = ("gradient_divide_factor", "_all_reduce_hook")
            if any(getattr(group, name, None) is not None for name in options):
                yield "a divide factor or all-reduce hook of fully_shard", "set none"


def parameter_groups(module: Any) -> list[Any]:
    """The groups of parameters that ``fully_shard`` has cut in a module."""
    state = module._get_fsdp_state()
    # By its version torch has several groups, or a single one.
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return list(filter(None, groups))
