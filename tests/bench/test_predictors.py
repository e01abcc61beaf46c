from pathlib import Path

import numpy as np
import polars as pl
from typer.testing import CliRunner

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.predictors import measure
from ata_gym.cli import app
from ata_policies.lb_bsp.predictors import Ema, Linear


def test_signals_reach_the_predictors() -> None:
    """Loads drive the speeds of ``changing-load``, which only who reads them foresees; of the hidden one, nobody."""
    errors = {}
    for name in ("changing-load", "changing-load-hidden"):
        experiment = Experiment.on_scenario(name, rounds=300, budget=1020, seeds=2)
        found = measure(experiment, {"ema": Ema(), "linear": Linear()}, skip=100)
        assert found["quantity"].unique(maintain_order=True).to_list() == ["square", "percentage"]
        assert (found["low"] < found["mean"]).all()
        errors[name] = found.filter(pl.col("quantity") == "square")["mean"].to_numpy()
    assert errors["changing-load"][1] < 0.8 * errors["changing-load"][0]
    np.testing.assert_allclose(errors["changing-load-hidden"][1], errors["changing-load-hidden"][0], rtol=0.2)


def test_the_command_leaves_its_tables(tmp_path: Path) -> None:
    line = f"predictors --scenario changing-walk --rounds 30 --skip 10 --seeds 1 --predictors last,ema --out {tmp_path}"
    result = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert result.exit_code == 0
    assert "rounds 11 to 30, 1 seed" in result.stdout
    table = pl.read_csv(tmp_path / "predictors.csv")
    assert table["predictor"].to_list() == ["last", "last", "ema", "ema"]
    assert table["low"].null_count() == 4
    assert "| ema" in (tmp_path / "predictors.md").read_text()
