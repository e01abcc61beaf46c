#!/usr/bin/env bash
# deepsig 1.2.8
#
# The correction for several comparisons of deepsig weakens with their number. aso() and multi_aso() test at 0.95 + 0.05 / n,
# where Bonferroni, which they name, has 1 - 0.05 / n: both are 0.975 for two comparisons, but for ten it is 0.955 in place of
# 0.995, and for many as if nothing were corrected, so that differences are reported as significant that are not. Two models,
# n = 1, are tested at 1: multi_aso() gives 1 or nan, never significant, however far apart they are.
# bonferroni_correction() gives the corrected values back to other comparisons than those they belong to, as it undoes its sort
# in the wrong direction; two values, or sorted ones, are right.
# It concerns tables of several models or data sets: use_bonferroni=False, and confidence_level=1 - 0.05 / n; and sort p-values.
. "$(dirname "$0")/fresh.bash"
install deepsig==1.2.8 numpy==2.4.6

expect "comparisons 1: epsilon 0.35, with the level of Bonferroni 0.35
comparisons 2: epsilon 0.41, with the level of Bonferroni 0.41
comparisons 10: epsilon 0.36, with the level of Bonferroni 0.53
comparisons 45: epsilon 0.35, with the level of Bonferroni 0.62
two models, ten standard deviations apart: aso 0, multi_aso nan, without its correction 0
p-values 0.04 0.5 0.001: corrected 0.5 0.003 0.08
p-values 0.001 0.04 0.5: corrected 0.003 0.08 0.5" <<'PY'
import numpy as np
from deepsig import aso, bonferroni_correction, multi_aso

OPTIONS = {"seed": 1, "num_bootstrap_iterations": 200, "show_progress": False}

rng = np.random.default_rng(0)
good, bad = rng.normal(10, 1, 10).tolist(), rng.normal(0, 1, 10).tolist()
first, second = rng.normal(0.6, 1, 20).tolist(), rng.normal(0, 1, 20).tolist()

for number in (1, 2, 10, 45):
    corrected = aso(first, second, num_comparisons=number, **OPTIONS)
    expected = aso(first, second, confidence_level=1 - 0.05 / number, **OPTIONS)
    print(
        f"comparisons {number}: epsilon {corrected:.2f},"
        f" with the level of Bonferroni {expected:.2f}"
    )

corrected = multi_aso([good, bad], **OPTIONS)[0, 1]
uncorrected = multi_aso([good, bad], use_bonferroni=False, **OPTIONS)[0, 1]
print(
    "two models, ten standard deviations apart:"
    f" aso {aso(good, bad, **OPTIONS):g}, multi_aso {corrected:g},"
    f" without its correction {uncorrected:g}"
)

for values in ([0.04, 0.5, 0.001], [0.001, 0.04, 0.5]):
    corrected = bonferroni_correction(np.array(values))
    print("p-values", *values, end=": corrected ")
    print(*(f"{value:g}" for value in corrected))
PY
