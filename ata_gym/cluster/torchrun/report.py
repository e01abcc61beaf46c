"""What a rank sends about its part of a round."""

from math import isfinite

from ata_gym.cluster.torchrun.gradients.task_gradients import TaskGradients
from ata_gym.cluster.torchrun.ranks.parts import Fault, RankPart
from ata_gym.cluster.torchrun.share import Share


def rank_part(
    share: Share,
    gradients: TaskGradients,
    *,
    checksum: int,
    weights: float,
    batches: tuple[int, int],
    leaves: bool,
    allow_nonfinite: bool,
) -> RankPart[float]:
    """What a rank sends once its tasks are computed.

    Args:
        share: Its share.
        gradients: The gradient of its tasks.
        checksum: A checksum of the allocation, and at times of the policy's state.
        weights: A fingerprint of the model's weights, or 0.
        batches: The checksums of the first batches of a loader, or 0.
        leaves: Whether it takes no tasks from the next round on.
        allow_nonfinite: Whether losses and gradients that are not finite are let through.
    """
    loss = share.loss()
    samples = 0
    if share.orders:
        samples = share.orders[-1]
    return RankPart(
        elapsed=share.watch.seconds(share.start_mark, share.computed_mark),
        latency=share.latency(),
        loss=loss,
        leaves=float(leaves),
        checksum=checksum,
        layout=gradients.layout,
        samples=samples,
        weight=share.weight,
        weights=weights,
        fault=_fault(share, loss, gradients, allow_nonfinite=allow_nonfinite),
        first_batch=batches[0],
        second_batch=batches[1],
        passes=share.passes,
        accumulated=gradients.older.weight,
        older_rounds=gradients.older.number + 1,
        changed_buffers=float(gradients.buffers.find_changes()),
    )


def _fault(share: Share, loss: float, gradients: TaskGradients, *, allow_nonfinite: bool) -> int:
    """What is wrong with the tasks of a rank, as ``RankPart`` holds it."""
    if not (allow_nonfinite or isfinite(loss)):
        return int(Fault.MEAN_OF_NOTHING if share.mean_of_nothing() else Fault.LOSS)
    fault, place = gradients.fault(finite=not (allow_nonfinite or share.scaled))
    return fault + len(Fault) * place
