"""``ata-gym pretrain``: the training of the learned policies of the zoo."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ata_gym.bench.progress import progress_bars
from ata_gym.cli.console import say
from ata_gym.utils.atomic import check_place
from ata_gym.utils.extras import require


class Learned(StrEnum):
    """The policies that can be trained."""

    ALLOCATION = "learned"
    DISPATCH = "learned-dispatch"


def pretrain(
    policy: Annotated[Learned, typer.Argument(help="The policy whose network is trained.")],
    out: Annotated[Path, typer.Option(help="The file of the weights; it ends in .safetensors.")],
    iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Iterations of play and gradients; by default 44, or 24 for learned-dispatch."),
    ] = None,
    generations: Annotated[int, typer.Option(min=0, help="Generations of the search over episodes, for learned.")] = 18,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the network and of the workers that it meets.")] = 0,
) -> None:
    r"""Train the network of a learned policy.

    The network meets workers drawn at random, and its weights are written to a file. The defaults are those of the
    weights in the package. The training takes some ten minutes on one core, and starts over when it is stopped. The
    same command gives the same weights on the same machine.

    ```
    ata-gym pretrain learned --out learned.safetensors
    ata-gym bench --scenario drawn-6-v1 --out results/own \
        --policies learned:weights=learned.safetensors,thompson-beta
    ```
    """
    require("torch", extra="train", purpose="The training of a policy")
    if out.suffix != ".safetensors":
        raise ValueError(f"out must be a file that ends in .safetensors, not {out}")
    check_place(out)
    import torch  # noqa: PLC0415 - importing torch takes a second

    from ata_gym.rl.pretraining import learned, learned_dispatch  # noqa: PLC0415
    from ata_policies.learned.network import write_network  # noqa: PLC0415

    torch.set_num_threads(1)  # so that the sums do not depend on the number of cores
    if policy is Learned.ALLOCATION:
        rounds = iterations or 44
        steps, training = rounds + generations, learned.train(rounds, generations, seed)
    else:
        steps = iterations or 24
        training = learned_dispatch.train(steps, seed)
    with progress_bars({policy.value: steps}) as progress:
        for done, (_, trained) in enumerate(training, 1):
            progress(policy.value, done)
            net = trained
    write_network(out, {name: tensor.numpy() for name, tensor in net.state_dict().items()})
    say(f"{policy.value} is trained: {out}")
