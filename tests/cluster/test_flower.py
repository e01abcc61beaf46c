"""Federated learning: unequal local steps, the shares of clients, and Flower, where it is
installed.
"""

import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.waiting import PATIENCE

pytest.importorskip("sklearn")
FOLDER = Path(__file__).parents[2] / "notebooks" / "cluster"
federated = SimpleNamespace(**runpy.run_path(str(FOLDER / "federated.py")))

STEPS = np.array([1, 3, 8])
WEIGHTS = np.array([5.0, 2.0, 3.0])


def quadratics(seed=0, n=3, d=4):
    """Curvatures (n, d, d) and minimisers (n, d) of F_i(x) = (x - m_i)' A_i (x - m_i) / 2."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, d, d))
    return factors @ factors.transpose(0, 2, 1) / d + 0.5 * np.eye(d), rng.normal(size=(n, d))


def minimum_of(curvatures, minimisers, weights):
    """The minimum of sum_i w_i F_i."""
    weighted = weights[:, None, None] * curvatures
    targets = np.einsum("nij,nj->i", weighted, minimisers)
    return np.linalg.solve(weighted.sum(axis=0), targets)


def fixed_point(average, curvatures, minimisers, rate, norms):
    """Where rounds of plain gradient steps end, by doing them."""
    x = np.zeros(minimisers.shape[1])
    for _ in range(200_000):
        ends = np.tile(x, (len(STEPS), 1))
        for i, steps in enumerate(STEPS):
            for _ in range(steps):
                ends[i] -= rate * curvatures[i] @ (ends[i] - minimisers[i])
        following = average(x, ends, norms, WEIGHTS)
        if np.abs(following - x).max() < 1e-15:
            break
        x = following
    return x


def test_fednova_ends_at_the_minimum_to_first_order_in_the_step_size_and_fedavg_elsewhere():
    curvatures, minimisers = quadratics()
    norms = np.array([federated.step_norm(steps) for steps in STEPS])
    true = minimum_of(curvatures, minimisers, WEIGHTS)
    other = minimum_of(curvatures, minimisers, WEIGHTS * STEPS)
    assert np.linalg.norm(true - other) > 0.1
    away = {"nova": [], "average": []}
    rates = (0.04, 0.02, 0.01)
    for rate in rates:
        nova = fixed_point(federated.fednova, curvatures, minimisers, rate, norms)
        average = fixed_point(federated.fedavg, curvatures, minimisers, rate, norms)
        away["nova"].append(np.linalg.norm(nova - true))
        away["average"].append(np.linalg.norm(average - other))
        # by a formula of its own: k steps shrink the distance by (1 - rate A)^k
        shrunk = np.array(
            [
                np.eye(4) - np.linalg.matrix_power(np.eye(4) - rate * A, steps)
                for A, steps in zip(curvatures, STEPS, strict=True)
            ]
        )
        for point, weights in ((nova, WEIGHTS / STEPS), (average, WEIGHTS)):
            exact = minimum_of(shrunk, minimisers, weights)
            assert point == pytest.approx(exact, abs=1e-10)
    for distances in away.values():
        # half of the step size, half of the distance
        ratios = np.array(distances[1:]) / distances[:-1]
        assert ratios == pytest.approx([0.5, 0.5], abs=0.05)
        assert distances[-1] < 0.2 * np.linalg.norm(true - other)


@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_where_all_losses_curve_alike_fednova_ends_at_the_minimum_exactly(rate):
    _, minimisers = quadratics()
    curvatures = np.tile(np.eye(4), (3, 1, 1))
    true = WEIGHTS @ minimisers / WEIGHTS.sum()
    # a curvature of 1 shrinks earlier steps as FedProx's term with mu = 1 does
    norms = np.array([federated.step_norm(steps, rate) for steps in STEPS])
    nova = fixed_point(federated.fednova, curvatures, minimisers, rate, norms)
    assert nova == pytest.approx(true, abs=1e-12)
    average = fixed_point(federated.fedavg, curvatures, minimisers, rate, norms)
    assert np.linalg.norm(average - true) > 0.05


def test_with_equal_steps_fednova_is_fedavg_and_clients_without_a_step_are_left_out():
    rng = np.random.default_rng(0)
    start, ends = rng.normal(size=(4, 2)), rng.normal(size=(3, 4, 2))
    equal = np.full(3, 7.0)
    averaged = federated.fedavg(start, ends, equal, WEIGHTS)
    assert federated.fednova(start, ends, equal, WEIGHTS) == pytest.approx(averaged, abs=1e-14)
    some = federated.fednova(start, ends, np.array([2.0, 0.0, 2.0]), WEIGHTS)
    two = federated.fedavg(start, ends[::2], equal[::2], WEIGHTS[::2])
    assert some == pytest.approx(two, abs=1e-14)
    with pytest.raises(ValueError, match=r"^no client did a step"):
        federated.fednova(start, ends, np.zeros(3), WEIGHTS)


def test_the_norm_is_that_of_the_weights_of_gradients():
    rate, mu, steps = 0.3, 0.9, 6
    moved = 0.0
    for _ in range(steps):
        moved -= rate * (1.0 + mu * moved)  # a loss whose gradient is 1, with FedProx's term
    assert federated.step_norm(steps, rate * mu) == pytest.approx(-moved / rate, rel=1e-13)
    assert federated.step_norm(steps) == steps


def test_the_gradient_is_that_of_the_loss_and_the_minimum_has_none():
    train, _ = federated.digits()
    rng = np.random.default_rng(0)
    weights, direction = rng.normal(size=(2, 65, 10))
    _, gradient = federated.loss_and_gradient(weights, train)
    above, below = (
        federated.loss_and_gradient(weights + sign * 1e-5 * direction, train)[0]
        for sign in (1.0, -1.0)
    )
    assert (above - below) / 2e-5 == pytest.approx(np.sum(gradient * direction), rel=1e-6)
    best, least = federated.minimum(train)
    loss, gradient = federated.loss_and_gradient(best, train)
    assert loss == least
    assert np.abs(gradient).max() < 1e-6


def test_the_data_of_clients_are_all_the_data_once_and_differ_by_class():
    train, _ = federated.digits()
    parts = federated.shared_out(train, 10, seed=3)
    assert sum(len(part.labels) for part in parts) == len(train.labels)
    rows = np.concatenate([part.inputs for part in parts])
    assert np.sort(rows.sum(axis=1)) == pytest.approx(np.sort(train.inputs.sum(axis=1)))
    shares = [np.bincount(part.labels, minlength=10) / len(part.labels) for part in parts]
    assert np.max(shares, axis=1).mean() > 0.3


def result_of(batches, **options):
    device = federated.Device(0.01, False, np.random.default_rng(1))
    samples = federated.samples_of(0, 10, 0)
    start = np.zeros((65, 10))
    rng = np.random.default_rng(0)
    return federated.train_locally(start, samples, batches, rng, device, rate=0.1, **options)


def test_a_client_whose_time_is_up_sends_the_batches_that_it_has():
    whole = result_of(20)
    assert len(whole.times.seconds) == 20
    assert whole.times.unfinished == 0.0
    deadline = whole.times.latency + sum(whole.times.seconds[:5]) + 0.4 * whole.times.seconds[5]
    stopped = result_of(20, deadline=deadline)
    assert stopped.times.seconds == whole.times.seconds[:5]
    assert stopped.times.unfinished == pytest.approx(0.4 * whole.times.seconds[5])
    assert stopped.weights.tobytes() == result_of(5).weights.tobytes()
    assert result_of(20, deadline=0.01).norm == 0.0


SPEEDS = {1: 0.01, 2: 0.01, 3: 0.02, 4: 0.2}


def times_of(client, batches):
    return federated.Times([SPEEDS[client]] * batches, 0.05, 0.0)


def play(shares, clients, rounds, silent=()):
    decided = []
    for _ in range(rounds):
        batches = shares.begin(clients)
        decided.append(dict(batches))
        asked = [client for client in batches if batches[client] and client not in silent]
        shares.end({client: times_of(client, batches[client]) for client in asked})
    return decided


@pytest.mark.parametrize("policy", ["default", "lb-bsp-federated"])
def test_clients_get_batches_by_their_speed_and_no_less_than_the_least(policy):
    shares = federated.ClientShares(24, policy, least=1)
    decided = play(shares, SPEEDS, 8)
    assert all(sum(batches.values()) == 24 for batches in decided)
    assert set(decided[0].values()) == {6}
    assert decided[-1][4] == 1
    assert decided[-1][3] in {4, 5}
    assert abs(decided[-1][1] - decided[-1][2]) <= 1


def test_without_a_least_a_very_slow_client_is_left_out():
    assert play(federated.ClientShares(24), SPEEDS, 8)[-1][4] == 0


@pytest.mark.parametrize("policy", ["default", "lb-bsp-federated"])
def test_a_late_client_is_no_error_and_gets_little_until_it_answers(policy):
    shares = federated.ClientShares(24, policy)
    assert play(shares, SPEEDS, 6, silent=[1])[-1][1] <= 1
    assert play(shares, SPEEDS, 25)[-1][1] >= 8


def test_clients_come_and_go_with_what_is_known_of_them():
    shares = federated.ClientShares(24, "default", least=1)
    play(shares, [1, 2, 4], 8)
    (gone,) = play(shares, [1, 4], 1)
    assert set(gone) == {1, 4}
    back = play(shares, [1, 2, 3, 4], 6)
    assert all(min(batches.values()) >= 1 for batches in back)
    assert back[0][4] == 1
    assert back[-1][2] > back[-1][3] > back[-1][4]


def test_a_round_in_which_nobody_answers_is_given_again():
    shares = federated.ClientShares(8, "default")
    first = dict(shares.begin([1, 2]))
    shares.end({})
    assert shares.begin([1, 2]) == first
    with pytest.raises(ValueError, match="no round has begun"):
        federated.ClientShares(8).end({})


@pytest.fixture
def compared(monkeypatch):
    """The script that compares, with the app; Flower has needs that others do not share, and is
    installed by ``nox -s flower``.
    """
    pytest.importorskip("flwr", reason="Flower is not here: nox -s flower")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("compare_flower")


def trained(compared, clients, strategy, rounds):
    models = []
    strategy.start(
        clients,
        compared.ArrayRecord.from_numpy_ndarrays([compared.first_model()]),
        num_rounds=rounds,
        train_config=compared.ConfigRecord({"rate": 0.1}),
        evaluate_fn=lambda _, arrays: models.append(arrays.to_numpy_ndarrays()[0]),
    )
    return models


def test_flower_rounds_are_shorter_and_the_same_seed_gives_the_same_bytes(compared):
    ways = [compared.METHODS[name] for name in ("default, at least 1", "FedAvg, equal batches")]
    constants = {"rate": 0.1}
    start = compared.first_model()
    ours, again, even = (
        compared.play(method, constants, 0, start=start, rounds=8)
        for method in (ways[0], ways[0], ways[1])
    )
    assert ours.models.tobytes() == again.models.tobytes()
    assert ours.seconds.tobytes() == again.seconds.tobytes()
    assert np.diff(ours.seconds)[0] == np.diff(even.seconds)[0]
    assert np.diff(ours.seconds)[-1] < 0.3 * np.diff(even.seconds)[-1]
    assert compared.accuracy(ours.models[-1], compared.TEST) > 0.6


def test_in_flower_a_late_client_is_no_error(compared):
    class Late(compared.SimulatedClients):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            return [reply for reply in replies if reply.metadata.src_node_id != 4]

    shares = compared.ClientShares(100, least=0)
    strategy = compared.AllocatedFedNova(shares, fraction_evaluate=0.0)
    models = trained(compared, Late(0), strategy, 6)
    assert len(models) == 7
    assert shares.batches[4] <= 1
    assert sum(shares.batches.values()) == 100


def test_what_would_spoil_the_model_is_refused_by_name(compared):
    class Broken(compared.SimulatedClients):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            bad = np.full_like(compared.first_model(), np.nan)
            replies[2].content["arrays"] = compared.ArrayRecord.from_numpy_ndarrays([bad])
            return replies

    strategy = compared.AllocatedFedNova(compared.ClientShares(100), fraction_evaluate=0.0)
    with pytest.raises(ValueError, match=r"^the model of client 2 has values .* in round 1: "):
        trained(compared, Broken(0), strategy, 1)
    with pytest.raises(ValueError, match=r"^fraction_train draws clients at random"):
        compared.AllocatedFedNova(compared.ClientShares(100), fraction_train=0.5)


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize("engine", ["--clients", "--supernodes"])
def test_the_app_runs_in_the_simulation_and_in_processes_of_its_own(engine):
    command = [sys.executable, str(FOLDER / "with_flower.py"), engine, "2", "--rounds", "2"]
    command += ["--budget", "12", "--policy", "certainty-equivalence", "--seconds", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"round"')]
    assert [line["round"] for line in lines] == [0, 1, 2]
    none, even, learned = (line["batches"] for line in lines)
    assert (none, even) == ([], [6, 6])
    assert sum(learned) == 12
    assert learned[0] < 6  # the second client takes twice as long
