#!/usr/bin/env bash
# river 0.26.1, pandas 2.3.3
#
# BayesianLinearRegression learns another model by learn_many() than by learn_one(), unless alpha is 1, though a batch is meant to
# be the same as its rows one after the other: learn_one() has the prior precision alpha, as in Bishop's equation 3.53, and
# learn_many() has 1 / alpha. Small alphas, which should leave the data alone, pull coefficients of a batch to 0: here 0.57 in place
# of 2.02 with alpha = 0.01, and the other way round with alpha = 100.
# It concerns comparisons over alpha and whoever learns in batches: learn rows, or keep alpha = 1.
. "$(dirname "$0")/fresh.bash"
install river==0.26.1 pandas==2.3.3 numpy==2.4.6

expect "the first coefficient is 2 in the data: 50 rows, prior of mean 0
alpha 0.01: row by row 2.02, in a batch 0.57; ridge regression with precision alpha 2.02, with 1 / alpha 0.57
alpha 1: row by row 1.97, in a batch 1.97; ridge regression with precision alpha 1.97, with 1 / alpha 1.97
alpha 100: row by row 0.57, in a batch 2.02; ridge regression with precision alpha 0.57, with 1 / alpha 2.02" <<'PY'
import numpy as np
import pandas as pd
from river.linear_model import BayesianLinearRegression

rng = np.random.default_rng(0)
x = rng.standard_normal((50, 2))
y = x @ [2.0, -1.0] + 0.1 * rng.standard_normal(50)
table = pd.DataFrame(x, columns=["a", "b"])


def ridge(precision):
    return np.linalg.solve(precision * np.eye(2) + x.T @ x, x.T @ y)[0]


print("the first coefficient is 2 in the data: 50 rows, prior of mean 0")
for alpha in (0.01, 1, 100):
    by_row = BayesianLinearRegression(alpha=alpha)
    for row, value in zip(table.to_dict("records"), y, strict=True):
        by_row.learn_one(row, value)
    in_batch = BayesianLinearRegression(alpha=alpha)
    in_batch.learn_many(table, pd.Series(y))
    first, second = (model.predict_one({"a": 1.0, "b": 0.0}) for model in (by_row, in_batch))
    print(
        f"alpha {alpha}: row by row {first:.2f}, in a batch {second:.2f};"
        f" ridge regression with precision alpha {ridge(alpha):.2f},"
        f" with 1 / alpha {ridge(1 / alpha):.2f}"
    )
PY
