"""Dumps of PyTorch's Flight Recorder, one of each rank: when each rank came to each collective."""

from pathlib import Path

import numpy as np

from ata_gym.bench.logs.flight_recorder.collectives import absent, matched
from ata_gym.bench.logs.flight_recorder.dumps import read_dumps, recognises
from ata_gym.bench.logs.flight_recorder.steps import steps_of
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log, checked


def _read(path: Path, options: Options) -> Log:
    """A log of the dumps of a folder; who did not come to the last collective is said first."""
    dumps, remarks = read_dumps(path)
    missed = absent(dumps)
    try:
        collectives = matched(dumps)
        steps = steps_of(collectives)
        log = Log(
            path.name,
            [str(dump.rank) for dump in dumps],
            steps.seconds,
            np.ones_like(steps.seconds),
            [
                *missed,
                *remarks,
                *collectives.remarks,
                *steps.remarks,
                "The arrivals of the ranks are compared by the clocks of their hosts.",
            ],
            rest=steps.rest,
            unit="s",
        )
        return checked(log, options.warmup)
    except ValueError as error:
        # a job that hung early has few steps, and who is absent is what its dumps can say
        if missed:
            raise ValueError(f"{' '.join(missed)} For a split of the work: {error}") from error
        raise


FORMAT = Format(
    "PyTorch Flight Recorder",
    "From the end of a collective in which the ranks wait to a rank's arrival at the next one.",
    recognises,
    _read,
    "Waiting in groups of some of the ranks and between two ranks; and with NCCL, without "
    "TORCH_NCCL_ENABLE_TIMING=1, the slowness of a device.",
)
"""Folders of the recorder's dumps in JSON."""
