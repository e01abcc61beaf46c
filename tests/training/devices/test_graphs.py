import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ata_gym.training.devices.device import seeded
from ata_gym.training.devices.graphs import SHAPES, WARM_UP, CudaGraphs, GraphedComputation
from ata_gym.training.models import at_weights, copy_weights
from ata_gym.utils.trees import map_leaves
from tests.training.devices.emulated_graphs import Counted, EmulatedGraphs


def network(dropout=0.0):
    """With buffers that a forward pass changes."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )


def gradient_of(model):
    def compute(batch):
        model.zero_grad()
        loss = cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        return loss.detach()

    return compute


def batch_of(key, rows=6, inputs=2):
    random = torch.Generator().manual_seed(key)
    return torch.randn(rows, inputs, generator=random), torch.randint(0, 3, (rows,), generator=random)


class Twins:
    """A model whose gradients are replayed, and one whose gradients are computed as usual."""

    def __init__(self, device="cpu", **kwargs):
        self.device = torch.device(device)
        self.models = [network(**kwargs).to(device), network(**kwargs).to(device)]
        self.counted = Counted(EmulatedGraphs() if device == "cpu" else CudaGraphs(torch.device(device)))
        self.graphed = GraphedComputation(gradient_of(self.models[0]), self.models[0], self.counted)
        self.keys = 0

    def agree(self, batch, at=None):
        """The losses, gradients and states of both are the same, on a CPU to the bit; then both take a step."""
        batch = map_leaves(lambda part: part.to(self.device), batch)
        losses = []
        for model, compute in zip(self.models, (self.graphed, gradient_of(self.models[1])), strict=True):
            with at_weights(model, at), seeded(self.keys, self.device):
                losses.append(compute(batch).clone())
        self.keys += 1
        ours, theirs = (list(model.parameters()) for model in self.models)
        pairs = [losses, *zip(*(model.state_dict().values() for model in self.models), strict=True)]
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine.grad is None) == (other.grad is None)
            pairs += [(mine.grad, other.grad)] * (mine.grad is not None)
        tolerance = 0 if self.device.type == "cpu" else 1e-5
        for mine, other in pairs:
            torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
        with torch.no_grad():
            for part in (*ours, *theirs):
                if part.grad is not None:
                    part.sub_(part.grad, alpha=0.1)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def twins(request):
    """On a CPU with dropout; on CUDA a replay need not draw what the computation itself draws."""
    return Twins(request.param, dropout=0.5 * (request.param == "cpu"))


def test_replays_give_the_bits_of_the_computation(twins):
    for key in range(10):
        twins.agree(batch_of(key))
    assert (twins.counted.prepared, twins.counted.captured, twins.counted.replayed) == (WARM_UP, 1, 10 - WARM_UP)


def test_a_batch_that_would_have_been_broadcast_is_another_shape(twins):
    for key in range(6):
        twins.agree(batch_of(key))
    inputs, labels = batch_of(6)
    twins.agree((inputs[:2], labels[:2]))
    twins.agree((inputs[:1].expand(6, 2), labels))
    for model in twins.models:
        model.eval()  # batch norm takes no single row
    twins.agree((inputs[:1], labels[:1]))
    assert twins.counted.replayed == 6 - WARM_UP


def test_each_of_a_few_shapes_has_a_graph_and_the_rest_is_computed_as_usual(twins):
    for turn in range(WARM_UP + 2):
        for rows in range(2, 2 + SHAPES + 2):
            twins.agree(batch_of(turn, rows=rows))
    assert twins.counted.captured == SHAPES
    assert twins.counted.replayed == 2 * SHAPES


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: [x, y],
        lambda x, y: (x, y, None),
        lambda x, y: (x.t().contiguous().t(), y),
        lambda x, y: {0: x, 1: y},
    ],
    ids=["list", "none", "strides", "mapping"],
)
def test_another_structure_is_another_shape(twins, other):
    for key in range(5):
        twins.agree(batch_of(key))
    twins.agree(other(*batch_of(5)))
    assert twins.counted.replayed == 5 - WARM_UP


def test_another_dtype_is_refused_as_the_model_refuses_it():
    twins = Twins()
    for key in range(5):
        twins.agree(batch_of(key))
    inputs, labels = batch_of(5)
    with pytest.raises(RuntimeError, match="dtype"):
        twins.graphed((inputs.double(), labels))


def test_gradients_left_by_another_computation_are_not_taken_for_those_of_a_replay(twins):
    for key in range(8):
        for model in twins.models:
            for part in model.parameters():
                part.grad = torch.zeros_like(part)
        twins.agree(batch_of(key))
    assert twins.counted.replayed == 8 - WARM_UP


def test_weights_elsewhere_in_memory_are_not_replayed(twins):
    old = copy_weights(twins.models[0])
    for key in range(8):
        twins.agree(batch_of(key), at=old if key in {1, 6} else None)
    assert twins.counted.replayed == 6 - WARM_UP


def test_a_buffer_or_a_weight_that_is_replaced_is_not_replayed(twins):
    for key in range(8):
        for model in twins.models if key == 4 else ():
            model[1].running_mean = model[1].running_mean.clone()
        for model in twins.models if key == 6 else ():
            model[0].weight = nn.Parameter(model[0].weight.detach().clone())
        twins.agree(batch_of(key))
    assert twins.counted.replayed == 4 - WARM_UP


def test_weights_that_are_frozen_and_modes_that_change_are_heeded(twins):

    def played(key):
        for turn in range(5):
            twins.agree(batch_of(10 * key + turn))

    played(0)
    for model in twins.models:
        model[0].requires_grad_(False)
    played(1)
    for model in twins.models:
        model[0].requires_grad_(True)
        model.eval()
    played(2)
    assert twins.counted.replayed == 5 - WARM_UP


def test_what_cannot_be_captured_is_one_sentence():
    model = network()

    def curious(batch):
        loss = gradient_of(model)(batch)
        return loss if loss.item() > 0 else -loss

    graphed = GraphedComputation(curious, model, EmulatedGraphs())
    for key in range(WARM_UP):
        graphed(batch_of(key))
    with pytest.raises(ValueError, match=r"graphs=True the loss may not look at values.*leave out graphs=True"):
        graphed(batch_of(9))
    with pytest.raises(TypeError, match=r"a problem's batch must be a tensor or tuples of tensors, not 3"):
        graphed((*batch_of(0), 3))


def test_the_emulation_runs_nothing_when_it_captures():
    model, (inputs, labels) = network(dropout=0.5), batch_of(0)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    compute = gradient_of(model)
    result, replay = EmulatedGraphs().capture(lambda: compute((inputs, labels)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    gradient = model[0].weight.grad
    assert result.isnan()
    assert gradient.isnan().all()
    replay()
    assert model[0].weight.grad is gradient
    assert not result.isnan()
    assert not torch.equal(torch.get_rng_state(), state)
    first = gradient.clone()
    inputs.add_(1.0)
    replay()
    assert not torch.equal(gradient, first)


def test_a_capture_is_on_a_stream_of_the_models_device(monkeypatch):
    """With torch's CUDA replaced: which stream is asked for, and on which it runs."""
    second, seen = torch.device("cuda:1"), []

    class Stream:
        def __init__(self, device):
            self.device = device

        def wait_stream(self, other):
            seen.append((self.device, other.device))

    class Graph:
        def replay(self):
            seen.append("replay")

    def graph(captured, stream):
        seen.append((type(captured), stream.device))
        return nullcontext()

    def on(stream):
        seen.append(stream.device)
        return nullcontext()

    for name, replacement in {
        "Stream": Stream, "current_stream": Stream, "stream": on, "graph": graph, "CUDAGraph": Graph, "device": on
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, replacement)
    monkeypatch.setattr(torch.cuda, "device", lambda device: on(Stream(device)))
    capturing = CudaGraphs(second)
    one = torch.ones(())
    assert capturing.prepare(lambda: one) is one
    assert seen == [(second, second), second, (second, second)]
    result, replay = capturing.capture(lambda: one)
    assert result is one
    assert seen[3:] == [second, (Graph, second)]
    replay()
    assert seen[-1] == "replay"
