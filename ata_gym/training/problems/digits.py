"""The problem ``digits``: handwritten digits, small and without a download."""

import numpy as np
import torch
from torch import nn

from ata_gym.training.problems.classification import Classification, every_fifth_held_out
from ata_gym.utils.extras import require


def digits() -> Classification:
    """Handwritten digits of 8 x 8 pixels from scikit-learn, and a CNN with 13,706 parameters.

    1,438 images train and every fifth, 359 in all, is held out, so that every writer is on both
    sides.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository,
    1998, CC BY 4.0.

    Raises:
        MissingExtraError: An ``ImportError``, if scikit-learn is not installed.

    Example:
        >>> sum(weights.numel() for weights in digits().build().parameters())
        13706
    """
    data = require("sklearn.datasets", extra="train", purpose="The problem digits").load_digits()
    # Grey levels from 0 to 16 become numbers from -1 to 1, in one channel.
    images = torch.from_numpy(data.images.astype(np.float32) / 8 - 1)[:, None]
    labels = torch.from_numpy(data.target.astype(np.int64))
    train, test = every_fifth_held_out(images, labels)
    return Classification(
        _cnn,
        train,
        test,
        name="digits",
        learning_rates={"sgd": 0.05, "adam": 3e-3},
    )


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
