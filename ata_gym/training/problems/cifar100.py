"""The problem ``cifar100``: the images and the network of the ATA paper."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.training.problems.cifar100_archives import MOST, read_archive
from ata_gym.training.problems.classification import Classification
from ata_gym.utils.atomic import check_source

_CLASSES = 100
_PARTS = ("train_x", "train_y", "test_x", "test_y")


def cifar100(data: str | Path) -> Classification:
    """CIFAR-100 and the paper's CNN with 167,684 parameters.

    Three 3 x 3 convolutions to 16, 32 and 64 channels, each with ReLU and max-pooling by 2, then fully connected
    layers 1024-128-100; Adam at 8e-5, pixels normalised to [-1, 1], no augmentation (Maranjyan et al., ATA, ICML
    2025). The images: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.

    - ``data``: the python or the binary version as published: ``cifar-100-python.tar.gz``, ``cifar-100-binary.tar.gz``,
      or the folder that one of them holds. Or an npz file with train_x (N, 32, 32, 3) and test_x, both uint8, and their
      classes train_y (N,) and test_y. No code in them is run.

    Raises FileNotFoundError if there is no such file or folder.
    Raises ValueError if it cannot be read, lacks a part, or a part has the wrong shape, dtype or classes.
    """
    path = Path(data)
    if not path.is_dir():
        check_source(path)
    parts = read_archive(path) if path.is_dir() or not _is_zip(path) else _read(path)
    train, test = (_checked(parts, which, path) for which in ("train", "test"))
    rates = {"adam": 8e-5, "sgd": 1e-2}
    return Classification(_cnn, train, test, transform=_normalise, name="cifar100", learning_rates=rates)


def _is_zip(path: Path) -> bool:
    """Whether it begins as an npz file does."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        parts = _arrays(path)
    except Exception as error:  # a damaged, encrypted or otherwise compressed archive may raise anything
        reason = "it holds Python objects" if "pickle" in str(error) else error
        raise ValueError(
            f"{path} cannot be read as an archive of CIFAR-100 or an npz file of plain arrays: {reason}"
        ) from error
    if len(parts) < len(_PARTS):
        raise ValueError(f"{path} must hold {', '.join(_PARTS)}, but has only: {', '.join(parts) or 'none of them'}")
    return parts


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as members:
        size = sum(member.file_size for member in members.infolist())
    if size > MOST:
        raise ValueError(f"it unpacks to {size:,} bytes, and at most {MOST:,} are read")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in _PARTS if name in archive}


def _checked(parts: dict[str, np.ndarray], which: str, path: Path) -> tuple[Tensor, Tensor]:
    images, labels = parts[f"{which}_x"], parts[f"{which}_y"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise ValueError(f"{path}: {which}_x must be uint8 of shape (N, 32, 32, 3), not {images.dtype} {images.shape}")
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{path}: {which}_y must be whole numbers of shape ({len(images)},), not {labels.dtype} {labels.shape}"
        )
    if not ((labels >= 0) & (labels < _CLASSES)).all():
        raise ValueError(f"{path}: the classes in {which}_y must lie in 0..{_CLASSES - 1}")
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), torch.from_numpy(labels.astype(np.int64))


def _normalise(images: Tensor) -> Tensor:
    return images.float().mul_(2 / 255).sub_(1)


def _cnn() -> nn.Module:
    convolutions = [
        layer
        for inputs, outputs in ((3, 16), (16, 32), (32, 64))
        for layer in (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, _CLASSES))
