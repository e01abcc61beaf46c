"""RLlib trains on the envs by their ids, with its new API stack. Run by ``nox -s rllib``."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from tests.envs.playing import LISTED, arguments, name

# RLlib needs dm-tree
if importlib.util.find_spec("ray") is None or importlib.util.find_spec("tree") is None:
    pytest.skip("ray[rllib] is not installed", allow_module_level=True)

pytestmark = [
    pytest.mark.library,
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("ray"),
]
STEPS = 128
FLAT = [form for form in LISTED if form["observation"] == "flat"]
WORKERS = [form for form in LISTED if form["observation"] == "workers"]
NATIVE, PROCESSES = ({"gym_env_vectorize_mode": mode} for mode in ("vector_entry_point", "async"))


def train(
    form: dict[str, str],
    processes: int = 0,
    prefix: str = "",
    module: Any = None,
    **env_runners: Any,
) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    if module is None:
        network = {"model_config": DefaultModelConfig(fcnet_hiddens=[16])}
    else:
        network = {"rl_module_spec": module}
    env_id, options = arguments(form)
    config = (
        PPOConfig()
        .environment(prefix + env_id, env_config={**options, "horizon": 2})
        .env_runners(num_env_runners=processes, num_envs_per_env_runner=2, **env_runners)
        .rl_module(**network)
        .training(train_batch_size=STEPS, minibatch_size=32, num_epochs=1)
        .debugging(seed=0)
    )
    agent = config.build_algo()
    try:
        told: dict[str, Any] = agent.train()["env_runners"]
    finally:
        agent.stop()
    assert told["num_env_steps_sampled"] >= STEPS
    assert told["num_episodes"] > 0
    assert np.isfinite(told["episode_return_mean"])
    assert told["episode_return_mean"] < 0


@pytest.mark.parametrize(
    ("form", "how"),
    [*((form, how) for form in FLAT for how in ({}, NATIVE)), (FLAT[0], PROCESSES)],
    ids=str,
)
def test_ppo_trains(form: dict[str, str], how: dict[str, str]) -> None:
    train(form, **how)


@pytest.mark.parametrize("form", WORKERS, ids=name)
def test_the_network_for_workers_trains(form: dict[str, str]) -> None:
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from ata_gym.rl.rllib import WorkersModule

    train(form, module=RLModuleSpec(module_class=WorkersModule, model_config={"hidden": 8}))


def test_another_process_imports_the_package_that_the_id_names() -> None:
    """A process of Ray has not imported it; Gymnasium does so for an id that begins with the
    package.
    """
    train(FLAT[0], processes=1, prefix="ata_gym:")


def test_features_of_workers_need_to_be_flat() -> None:
    with pytest.raises(ValueError, match="2D Box"):
        train(FLAT[0] | {"observation": "workers"})
