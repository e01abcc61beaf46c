"""Jobs of real ranks with stragglers, with what each rank did measured by hand inside of it."""

import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np


class Delays(NamedTuple):
    """What makes a rank slow: seconds more in each step."""

    forward: float = 0.0
    early_backward: float = 0.0
    late_backward: float = 0.0
    loader: float = 0.0
    optimizer: float = 0.0


class SetUp(NamedTuple):
    """A job."""

    delays: dict[int, Delays]
    """The delays of ranks, by rank; the other ranks have none."""
    culprit: int
    """The rank that is done last."""
    sharded: bool = False


SLOW = 0.04
SET_UPS = {
    "forward": SetUp({1: Delays(forward=SLOW)}, 1),
    "early backward": SetUp({1: Delays(early_backward=SLOW)}, 1),
    "late backward": SetUp({2: Delays(late_backward=SLOW)}, 2),
    "data loader": SetUp({0: Delays(loader=SLOW)}, 0),
    "two at once": SetUp({0: Delays(forward=SLOW), 1: Delays(late_backward=1.6 * SLOW)}, 1),
    "fully sharded": SetUp({2: Delays(forward=SLOW)}, 2, sharded=True),
    "optimizer": SetUp({1: Delays(optimizer=SLOW)}, 1),
}
WARM_UP = 3
LAYERS = 4


def profiled(set_up: SetUp, folder: str, steps: int) -> list[float]:
    """Train on this rank with a profiler; the seconds that its own work took in each step.

    Its own work is a step without its waits. They are measured beside the profiler, in the waits of
    the library or, where those are inside of it, from the last gradient to the end of the backward
    pass.
    """
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    delays = set_up.delays.get(rank, Delays())
    model = _model(delays, set_up.sharded)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(8, 64)
    waits = [0.0]
    last_gradient = [0.0]
    wait = dist.Work.wait

    def timed_wait(work: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = wait(work, *arguments)
        waits[0] += time.perf_counter() - start
        return result

    def at_gradient(_parameter: Any) -> None:
        last_gradient[0] = time.perf_counter()

    if not set_up.sharded:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(at_gradient)
    own = []
    with (
        mock.patch.object(dist.Work, "wait", timed_wait),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=1, warmup=WARM_UP - 1, active=steps, repeat=1),
            on_trace_ready=torch.profiler.tensorboard_trace_handler(folder),
        ) as profiler,
    ):
        for _ in range(WARM_UP + steps):
            waits[0] = 0.0
            start = time.perf_counter()
            time.sleep(0.002 + delays.loader)
            model(inputs).sum().backward()
            if not set_up.sharded:
                waits[0] += time.perf_counter() - last_gradient[0]
            time.sleep(0.002 + delays.optimizer)
            optimizer.step()
            optimizer.zero_grad()
            own.append(time.perf_counter() - start - waits[0])
            profiler.step()
    return own[WARM_UP:]


def _model(delays: Delays, sharded: bool) -> Any:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    class Sleeping(torch.autograd.Function):
        """A part of the work of a layer."""

        @staticmethod
        def forward(context: Any, inputs: Any, forward: float, backward: float) -> Any:
            context.backward_seconds = backward
            time.sleep(forward)
            return inputs.clone()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            time.sleep(context.backward_seconds)
            return gradient.clone(), None, None

    class Layer(torch.nn.Module):
        def __init__(self, forward_seconds: float, backward_seconds: float) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)
            self.seconds = (forward_seconds, backward_seconds)

        def forward(self, inputs: Any) -> Any:
            return torch.relu(self.linear(Sleeping.apply(inputs, *self.seconds)))

    torch.manual_seed(0)
    forward = [0.001] * LAYERS
    backward = [0.002] * LAYERS
    forward[1] += delays.forward
    # the backward pass begins with the last layer, and the inputs of the first need no gradient
    backward[-1] += delays.early_backward
    backward[1] += delays.late_backward
    layers = [Layer(*seconds) for seconds in zip(forward, backward, strict=True)]
    model = torch.nn.Sequential(*layers)
    if not sharded:
        # a bucket for each layer
        return DistributedDataParallel(model, bucket_cap_mb=0.01)  # type: ignore[arg-type]
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def run(name: str, folder: Path, steps: int, ranks: int = 3) -> Any:
    """The seconds of the own work of each rank in each step, (steps, ranks), measured by hand."""
    from tests.cluster.torchrun.processes import on_ranks

    return np.array(on_ranks(ranks, profiled, SET_UPS[name], str(folder), steps)).T
