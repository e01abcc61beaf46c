"""The trajectory of a figure, in a folder beside the records of the policies."""

from pathlib import Path

import polars as pl

from ata_gym.bench.store.folder import Folder, open_folder, read_frame
from ata_gym.bench.studies.training.trajectory import Training, trajectory_files

_TRAINING = "training"
"""The folder of the trajectory, in the folder of a figure."""


def open_training(training: Training, rounds: int, folder: Path) -> Folder:
    """Open the folder of the trajectory in the folder of a figure.

    Raises:
        ValueError: If it holds the trajectory of another training.
    """
    return open_folder(folder / _TRAINING, {"rounds": rounds} | training.config())


def read_trajectory(folder: Path) -> pl.DataFrame:
    """Read the trajectory in the folder of a figure.

    Raises:
        DamagedError: If it is not what was written.
    """
    return read_frame(trajectory_files(Folder(folder / _TRAINING))[0])
