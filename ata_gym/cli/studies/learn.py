"""Commands that train an agent of Stable-Baselines3, and the learned policy of the zoo."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_files, show_results
from ata_gym.cli.options import RerunChanged, Rounds, SaveEvery
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import check_place

if TYPE_CHECKING:
    from ata_gym.bench.runner.jobs import Effort


def learn(
    out: options.Out = None,
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            help="allocation, race or dispatch.",
            autocompletion=options.complete_env,
        ),
    ] = "allocation",
    scenario: Annotated[
        str,
        options.scenario_option(
            help=(
                "A named scenario; `ata-gym scenarios` lists them. Those called drawn-... are for"
                " agents."
            ),
        ),
    ] = "drawn-6-v1",
    price: Annotated[
        float | None,
        typer.Option(
            help="What one unit of worker time costs in units of runtime; else the scenario's.",
        ),
    ] = None,
    rounds: Rounds = None,
    algorithm: Annotated[str, typer.Option(help="ppo, a2c, maskable-ppo or dqn.")] = "ppo",
    action: Annotated[
        str | None,
        typer.Option(
            help="shares or assign in allocation, shares in a race, dispatch or start in dispatch.",
        ),
    ] = None,
    hyperparameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Of the algorithm; else PPO_SETTINGS for ppo, or the library's.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of training, over all rows.")] = 500_000,
    rows: Annotated[int, typer.Option(help="Episodes side by side in training.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the agent, and of the first row in training.")] = 0,
    evaluations: Annotated[int, typer.Option(help="Evaluations in training, evenly spaced.")] = 20,
    validation: Annotated[
        int,
        typer.Option(help="Seeds of each evaluation; the best agent on them is kept."),
    ] = 64,
    test: Annotated[int, typer.Option(help="Seeds on which that one is played at the end.")] = 256,
    save_every: SaveEvery = 10.0,
    rerun_changed: RerunChanged = False,
) -> None:
    r"""Train an RL agent, and compare it with the policies.

    The agent is one of Stable-Baselines3 or sb3-contrib, and the comparison is on other seeds. The
    cost is runtime + price x worker time of an episode. It is compared on the same seeds with those
    of a uniform allocation, ATA, the recommended policy and an oracle that knows the workers. After
    a kill the same command goes on where it stopped, with the same result. OUT holds the curve, a
    table, a picture, and the log for `tensorboard --logdir OUT/tensorboard`.

    ```
    ata-gym learn --price 0.1 --out results/learned
    ata-gym learn race --rows 32 --out results/race \
        --hyperparameter n_steps=50 --hyperparameter batch_size=400
    ata-gym learn dispatch --algorithm maskable-ppo --action start \
        --out results/starts
    ata-gym bench --scenario drawn-6-v1 --out results/own --policies \
        uta,ata_gym.rl.agent:LearnedAgent:folder=results/learned
    ```
    """
    for module in ("stable_baselines3", "sb3_contrib", "tensorboard"):
        require(module, extra="rl", purpose="The command learn")
    effort = options.Running(save_every=save_every, rerun_changed=rerun_changed).effort()
    name = options.unrecorded(scenario, "learn")
    agent = {
        "algorithm": algorithm,
        "action": action,
        "hyperparameters": split_hyperparameters(hyperparameter or ()),
        "seed": seed,
    }
    sizes = {"price": price, "rounds": rounds, "steps": steps, "rows": rows}
    seeds = {"evaluations": evaluations, "validation": validation, "test": test}
    folder = options.results_folder(out, name, "learned", env)
    _train_agent(env, name, folder, effort, {**agent, **sizes, **seeds})


def _train_agent(
    env: str,
    scenario: str,
    folder: Path,
    effort: Effort,
    arguments: Mapping[str, Any],
) -> None:
    """Train and compare an agent, and say where it is and how to play it."""
    from ata_gym import bench
    from ata_gym.bench.studies.learning.training import agent_file
    from ata_gym.rl.specification import policy_name

    results = bench.learn(
        env,
        scenario,
        out=folder,
        save_every=effort.save_every,
        rerun_changed=effort.rerun_changed,
        command=command_line(),
        **arguments,
    )
    show_results(results)
    say_files("agent", [agent_file(folder)])
    say(f"play it as {policy_name(env, folder)}")


def split_hyperparameters(texts: Sequence[str]) -> dict[str, Any]:
    """Hyperparameters from texts NAME=VALUE; a value is a literal of Python, or text.

    Raises:
        ValueError: For anything else.

    Example:
        >>> split_hyperparameters(["n_steps=50", "ent_coef=1e-3", "policy_kwargs={'hidden': 64}"])
        {'n_steps': 50, 'ent_coef': 0.001, 'policy_kwargs': {'hidden': 64}}
    """
    from ata_gym.utils.validation import short

    hyperparameters: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier() and value) or name in hyperparameters:
            raise ValueError(
                f"a hyperparameter is given as NAME=VALUE, each once, not as {short(text)}",
            )
        try:
            hyperparameters[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            hyperparameters[name] = value
    return hyperparameters


def pretrain(
    out: Annotated[Path, typer.Option(help="The file of the weights; it ends in .safetensors.")],
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of play and gradients.")] = 36,
    generations: Annotated[
        int,
        typer.Option(min=0, help="Generations of the search over episodes."),
    ] = 14,
    seed: Annotated[
        int,
        typer.Option(min=0, help="The seed of the network and of the workers that it meets."),
    ] = 0,
) -> None:
    r"""Train the network of the learned policy.

    The network meets workers drawn at random, and its weights are written to a file. The defaults
    gave the weights in the package. The training takes some 25 minutes on one core. After a
    kill the same command goes on where it stopped, from a checkpoint beside OUT; it gives the same
    weights on the same machine.

    ```
    ata-gym pretrain --out learned.safetensors
    ata-gym bench --scenario drawn-6-v1 --out results/own \
        --policies learned:weights=learned.safetensors,thompson-beta
    ```
    """
    require("torch", extra="train", purpose="The training of a policy")
    if out.suffix != ".safetensors":
        raise ValueError(f"out must be a file that ends in .safetensors, not {out}")
    check_place(out)
    import torch

    from ata_gym.bench.runner.progress import progress_bars
    from ata_gym.models.checkpoint import pack, unpack
    from ata_gym.rl.pretraining.learned import Pretraining
    from ata_gym.utils.files.sealed import load_checkpoint, remove_checkpoint, save_checkpoint
    from ata_gym.utils.process.signals import stop_requested
    from ata_policies.learned.network import write_network

    # one thread, so that the sums do not depend on the number of cores
    torch.set_num_threads(1)
    training = Pretraining(iterations, generations, seed)
    checkpoint_path = out.with_suffix(".checkpoint")
    checkpoint = load_checkpoint(checkpoint_path, unpack)
    if checkpoint is not None:
        training.restore(checkpoint)
    # a step counts 100 in the progress, so that the bar moves within it
    total = 100 * training.steps
    with stop_requested() as stop, progress_bars({"learned": total}) as progress:
        line = ""
        while training.done < training.steps and not stop():
            line = training.step(
                lambda share: progress(
                    "learned",
                    int(100 * (training.done + share)),
                    line,  # noqa: B023 - the line of the step before
                ),
            )
            save_checkpoint(checkpoint_path, pack(training.checkpoint()))
    weights = {name: tensor.numpy() for name, tensor in training.net().state_dict().items()}
    write_network(out, weights)
    remove_checkpoint(checkpoint_path)
    say(f"learned is trained: {out}")
