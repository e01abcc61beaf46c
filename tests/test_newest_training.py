"""The trainings that the page of the newest methods shows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from docs import newest_training  # noqa: E402
from docs.newest_training import CASES, Case, MuonWithAdamW, Rival  # noqa: E402


def test_step_sizes_are_chosen_on_seeds_that_the_table_does_not_have(monkeypatch):
    played = []

    def curve(_case, _problem, _rival, rate, seed, times):
        played.append((rate, seed))
        # On its own seeds the table would choose another step size.
        best = 0.5 if seed >= 100 else 5.0
        return np.abs(np.log(rate / best)) + 0.01 * seed + 0 * times

    monkeypatch.setattr(newest_training, "curve", curve)
    case = Case(lambda _: None, {}, 8.0, tuning=2, points=8)
    result = newest_training.trained(case, None, Rival("asgd", 0.5), 3, 8.0)
    assert (result.rate, result.shown_rate) == (0.5, "0.5")
    assert {seed for rate, seed in played if rate != 0.5} == {100, 101}
    np.testing.assert_allclose(result.ends, np.log(10) + 0.01 * np.arange(3))
    at_end = newest_training.trained(case, None, Rival("asgd", 0.05), 3, 8.0)
    assert at_end.shown_rate == "(0.5)"


def test_the_last_quarter_and_paired_ratios_are_shown(monkeypatch):
    def curve(_case, _problem, rival, _rate, seed, times):
        if rival.method == "ssp":
            return np.full(len(times), np.inf if seed == 1 else 1.0)
        return (1.0 + seed) * np.where(times > 6.0, rival.middle, 9.0)

    monkeypatch.setattr(newest_training, "curve", curve)
    case = Case(lambda _: None, {}, 8.0, grid=(1.0,), points=8)
    rivals = {"a": Rival("asgd", 2.0), "b": Rival("minibatch", 3.0), "c": Rival("ssp", 1.0)}
    results = {
        name: newest_training.trained(case, None, rival, 2, 8.0) for name, rival in rivals.items()
    }
    np.testing.assert_allclose(results["a"].ends, [2.0, 4.0])
    shown = newest_training.table(case, results).rows
    assert [row[3] for row in shown] == ["1", "1.5 to 1.5", "-"]
    assert shown[2][2] == "overflows in 1 of 2"
    assert newest_training.drawing(case, results, 8.0).names == ["a, (2)", "b, (3)"]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_muon_has_the_matrices_and_adamw_the_rest():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4, 3))
    kernel, *vectors = (part.detach().clone() for part in model.parameters() if part.dim() != 2)
    alone = torch.nn.Parameter(kernel.flatten(1))
    muon = torch.optim.Muon([alone], 0.01, adjust_lr_fn="match_rms_adamw")
    biases = [torch.nn.Parameter(vector) for vector in vectors]
    adamw = torch.optim.AdamW(biases, 0.01)
    both = MuonWithAdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        both.zero_grad()
        model(torch.randn(5, 2, 3, 3)).square().sum().backward()
        alone.grad = model[0].weight.grad.flatten(1)
        biases[0].grad, biases[1].grad = model[0].bias.grad, model[2].bias.grad
        for step in (both, muon, adamw):
            step.step()
    assert torch.equal(model[0].weight.flatten(1), alone)
    assert torch.equal(model[0].bias, biases[0])
    assert torch.equal(model[2].bias, biases[1])


@pytest.mark.parametrize("method", ["rescaled-asgd", "rennala-mvr"])
def test_rivals_train_on_the_clock_until_each_time(method):
    case = CASES[method]["quadratic"]
    problem = case.problem(None)
    times = np.array([1.0, 30.0])
    for rival in case.rivals.values():
        figures = newest_training.curve(case, problem, rival, rival.middle / 10, 3, times)
        assert figures[1] < figures[0]
    overflow = newest_training.curve(case, problem, rival, 1e9, 3, np.array([300.0]))
    assert np.isinf(overflow).all()


def test_a_loss_that_is_no_number_is_never_the_best(monkeypatch):
    class Run:
        def __init__(self, *_args, **_arguments):
            self.runtime = 0.0

        def __next__(self):
            self.runtime += 1.0
            if self.runtime > 2.0:
                raise FloatingPointError
            return self

        def evaluate(self):
            return {"test_loss": 1.0 if self.runtime < 2.0 else np.nan}

    monkeypatch.setattr(newest_training, "MethodRun", Run)
    case = Case(lambda _: None, {}, 4.0)
    figures = newest_training.curve(case, None, Rival("asgd", 1.0), 1.0, 0, np.arange(1.0, 5.0))
    assert figures.tolist() == [1.0, np.inf, np.inf, np.inf]
