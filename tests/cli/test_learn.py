import sys

import pytest

from ata_gym.utils.extras import MissingExtraError
from tests.flips import unseen

TINY = "learn --rounds 4 --steps 64 --rows 4 --evaluations 2 --validation 2 --test 2 --save-every 0"
SHORT = "--hyperparameter n_steps=8 --hyperparameter batch_size=16 --out out"


@pytest.fixture
def rl() -> None:
    for module in ("stable_baselines3", "sb3_contrib", "tensorboard"):
        pytest.importorskip(module, reason="extra rl is not installed")


@pytest.mark.usefixtures("rl")
def test_learn_leaves_a_table_a_picture_a_log_and_an_agent_that_bench_plays(run, refused, tmp_path):
    assert "the training of ppo failed: TypeError" in refused(
        f"{TINY} {SHORT} --hyperparameter ent_coef=much",
    )
    assert not (
        tmp_path / "out" / "config.json"
    ).exists()  # so that the folder takes the corrected command
    first = run(f"{TINY} {SHORT}")
    second = run(f"{TINY} {SHORT}")
    assert first.stdout == second.stdout
    for name in ("agent", "uta", "ata-icml", "distribution-learner", "dynamic-oracle"):
        assert f" {name} " in first.stdout
    for name in (
        "table.md",
        "table.csv",
        "curve.csv",
        "plots/learning.png",
        "plots/learning.svg",
        "report.html",
        "agent.zip",
        "config.json",
    ):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert unseen(tmp_path / "out") == []
    longer = f"{TINY} {SHORT}er".replace("n_steps=8", "n_steps=16")
    assert "a rollout of 64 steps is longer than the steps between two" in run(longer).stderr
    logs = (tmp_path / "out" / "tensorboard").iterdir()  # one is of the training that failed
    assert any(b"validation/cost/uta" in log.read_bytes() for log in logs)
    name = first.stdout.splitlines()[-1].removeprefix("play it as ")
    benched = run(
        f"bench --scenario drawn-6-v1 --rounds 3 --seeds 2 --jobs 1 --policies uta,{name} --out"
        " benched",
    )
    assert "LearnedAgent:folder=out" in benched.stdout
    told = refused(f"{TINY} {SHORT} --price 0.5".replace("n_steps=8", "n_steps=4"))
    for said in ('hyperparameters is {"n_step', "price is 0.0 there and 0.5 here"):
        assert said in told


@pytest.mark.usefixtures("rl")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("swarm", "env"),
        ("--algorithm sac", "algorithm"),
        ("dispatch --action shares", "action of ppo in dispatch"),
        ("--action start", "shares"),
        ("dispatch --algorithm dqn --action dispatch", "start"),
        ("race --algorithm dqn", "use ppo or a2c"),
        ("--hyperparameter n_stepps=8", "n_steps"),
        ("--hyperparameter device=cuda", "there is no hyperparameter of ppo 'device'"),
        ("--hyperparameter n_steps=many", "ppo does not take these hyperparameters"),
        ("--hyperparameter gamma", "NAME=VALUE, each once"),
        ("--hyperparameter =0.9", "NAME=VALUE, each once"),
        ("--hyperparameter gamma=", "NAME=VALUE, each once"),
        ("--hyperparameter 'a b=1'", "NAME=VALUE, each once"),
        ("--hyperparameter gamma=0.5 --hyperparameter gamma=0.6", "NAME=VALUE, each once"),
        ("--scenario drawn-7", "drawn-6-v1"),
        ("--scenario alibaba-1", "made of recorded times, which learn does not play"),
        ("--validation 0", "validation must be a whole number"),
        ("--rows 0", "rows must be"),
        ("--evaluations 65", "evaluations must be at most the steps, 64"),
        ("--test 2000000", "the split test has 1,000,000 seeds"),
        ("--price -1", "price"),
        ("--save-every -1", "save-every"),
    ],
)
def test_learn_refuses_what_there_is_not(refused, tmp_path, options, says):
    assert says in refused(f"{TINY} {options} --out out")
    assert not (tmp_path / "out").exists()


def test_learn_says_which_extra_it_needs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(
        MissingExtraError,
        match=r'The command learn needs stable_baselines3: pip .*"ata-gym\[rl\]"',
    ):
        run(f"{TINY} --out out")
