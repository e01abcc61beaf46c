"""Tiny trainings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rl.conftest import one_thread  # noqa: F401

SHORT = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "learning_rate": 0.02}
TINY: dict[str, dict[str, Any]] = {
    "ppo": SHORT,
    "a2c": {"n_steps": 7, "learning_rate": 0.05},
    "maskable-ppo": SHORT,
    "dqn": {"learning_starts": 16, "batch_size": 8, "buffer_size": 200, "learning_rate": 0.02},
}
"""Hyperparameters with which a hundred steps change what an agent does."""


@pytest.fixture(scope="session")
def learning() -> Callable[..., Any]:
    from ata_gym.bench.studies.learning.experiment import Learning
    from ata_gym.rl.specification import AgentSpec
    from ata_gym.scenarios import resolve

    def make(
        env: str = "allocation",
        algorithm: str = "ppo",
        action: str = "",
        **others: Any,
    ) -> Learning:
        spec = AgentSpec(env, algorithm, action, 3, TINY[algorithm])
        sizes = {"rows": 4, "evaluations": 2, "validation_rows": 3, "test_rows": 4} | others
        return Learning(
            spec,
            replace(resolve("drawn-6-v1", price=0.1), horizon=5),
            sizes.pop("steps", 128),
            **sizes,
        )

    return make


@pytest.fixture(scope="session")
def learn_in() -> Callable[..., Any]:
    from ata_gym.bench.runner.jobs import Effort
    from ata_gym.bench.runner.study import play
    from ata_gym.bench.studies.learning.study import AgentTraining

    def run(learning: Any, path: Path, save_every: float = 10.0) -> Any:
        training = AgentTraining(dict.fromkeys(learning.references()), learning)
        return play(training, path, Effort(save_every=save_every))

    return run


@pytest.fixture(scope="session")
def trained(
    learning: Callable[..., Any],
    learn_in: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, Any, Path]:
    path = tmp_path_factory.mktemp("trained")
    return learning(), learn_in(learning(), path), path
