import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ata_gym.cli import options
from ata_policies.beliefs.prior import read_prior
from tests.flips import unseen


@pytest.fixture(autouse=True)
def trace(tmp_path: Path) -> None:
    rows = [f"{m},{k},{s * k % 7 + 1}\n" for k in range(1, 7) for m, s in (("a", 2), ("b", 3))]
    (tmp_path / "trace.csv").write_text("machine,step,seconds\n" + "".join(rows))


def test_bench_leaves_records_tables_and_pictures_and_says_where(run, benched):
    assert run(benched.line).stdout == benched.told
    for name in (
        "table.md",
        "table.csv",
        "config.json",
        "timings.json",
        "results/uta.parquet",
        "plots/regret.svg",
    ):
        assert (benched.out / name).stat().st_size > 0
    for file in (
        "out/table.{md,csv}",
        "out/plots/runtime.{png,svg}",
        "out/plots/worker_time.{png,svg}",
    ):
        assert file in benched.told
    records = pl.read_parquet("out/results/uta.parquet")
    assert records["round"].max() == 20
    assert records["seed"].unique().to_list() == [0, 1]


@pytest.mark.parametrize(
    ("by", "rounds", "says"),
    [
        ("step", None, "6 rounds; 6 rounds are played\n"),
        ("step", 8, "6 rounds; 8 rounds are played; a record that ends starts over\n"),
        (
            None,
            None,
            (
                "4 times as many tasks as a round needs; 4 rounds are played; a record that ends"
                " starts over\n"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("run")
def test_a_trace_is_told_with_how_much_it_holds(capsys, by, rounds, says):
    found = options.Source(
        None,
        None,
        Path("trace.csv"),
        "machine",
        "seconds",
        by,
        3,
        rounds,
    ).find()
    assert capsys.readouterr().out == f"trace.csv holds {says}"
    assert (found.name, found.budget, found.pool.n) == ("trace.csv", 3, 2)


def test_track_tells_how_long_a_change_takes_and_goes_on_from_what_is_there(run, tmp_path):
    line = f"{TRACK} --change 3 --before 2 --after 3 --policies"
    first = run(f"{line} uta")
    second = run(f"{line} uta,dynamic-ofta")
    assert "a change after 3 rounds, 1 seed\n" in first.stdout
    assert " 1 of 1 " in second.stdout  # uta never follows
    assert run(f"{line} uta,dynamic-ofta").stdout == second.stdout
    for name in (
        "table.md",
        "table.csv",
        "delays.csv",
        "results/uta.parquet",
        "plots/change.png",
        "plots/change.svg",
    ):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert unseen(tmp_path / "out") == []
    delays = pl.read_csv("out/delays.csv")
    assert delays["policy"].to_list() == ["uta"] * 2 + ["dynamic-ofta"] * 2
    assert pl.read_parquet("out/results/uta.parquet")["round"].to_list() == [2, 3, 4, 5, 6]


def test_a_trace_is_benched(run):
    pl.read_csv("trace.csv").write_parquet("trace.parquet")
    line = (
        "bench --trace trace.parquet --worker-column machine --duration-column seconds"
        " --round-column step"
    )
    result = run(f"{line} --budget 3 --seeds 2 --jobs 1 --out out")
    assert all(f" {name} " in result.stdout for name in options.PUBLISHED.split(","))
    assert pl.read_parquet("out/results/uta.parquet")["round"].max() == 6


def test_recorded_scenarios_are_shown_and_played(run, shared_data):
    assert (
        "a training job of 10 near-equal workers"
        in run(f"scenarios alibaba-1 --data '{shared_data}'").stdout
    )
    result = run(
        f"bench --scenario alibaba-1 --data '{shared_data}' --policies uta --seeds 1 --jobs 1 --out"
        " job1",
    )
    assert "alibaba-1: n = 10, B = 10" in result.stdout
    assert "300 rounds" in result.stdout


def test_reproduce_does_not_claim_what_a_short_run_cannot_show(run):
    result = run("reproduce icml2025-cifar100 --rounds 20 --seeds 2 --jobs 1")
    assert result.stdout.count("not comparable") >= 10
    assert "750,000 rounds; these are 20" in result.stdout
    assert "Reproduced" not in result.stdout
    assert Path("results/icml2025-cifar100-20-rounds-2-seeds/table.csv").exists()


def test_reproduce_tells_whether_the_regret_grows_as_the_logarithm(run, monkeypatch):
    from ata_gym.bench.studies.paper import regret as regret_figure

    monkeypatch.setattr(regret_figure, "POLICIES", ("ata-icml", "ata"))
    result = run("reproduce icml2025-regret --rounds 300 --seeds 2 --jobs 1 --out out")
    assert "constant" in result.stdout
    assert "4,000,000 rounds and 5 seeds" in result.stdout
    assert (
        "alpha = 40 lies below the psi1 norm of 10 of 20 workers (up to 80); eta = 1 lies below"
        in result.stdout
    )
    assert (
        "Lower bound: R_K >= 50.82 ln K as K grows, for every policy that learns" in result.stdout
    )
    assert "c ln K is 290 after the last round" in result.stdout
    for name in ("slopes.md", "slopes.csv", "plots/regret.png", "plots/regret.svg"):
        assert Path("out", name).stat().st_size > 0


@pytest.mark.parametrize("figure", ["prior", "motivation"])
def test_a_figure_of_which_the_papers_numbers_are_unknown_says_what_is_ours(run, figure):
    line = f"reproduce icml2025-{figure} --rounds 40 --seeds 2 --jobs 1 --out out"
    first = run(line)
    again = run(line)
    assert (first.stdout, first.stderr) == (again.stdout, again.stderr)
    assert "ata-gym: Ours: the " in first.stderr
    assert "Ours: the " in Path("out/report.html").read_text("utf-8")
    assert all(
        Path("out", name).exists() for name in ("table.md", "report.html", "plots/worker_time.svg")
    )
    ratios = (
        pl.read_csv("out/table.csv")
        .filter(quantity="runtime/ofta")
        .rows_by_key("policy", unique=True)
    )
    if figure == "motivation":
        assert ratios["gta"][1] < ratios["ofta"][1] == ratios["oracle"][1] < ratios["uta"][1]
        return
    assert ratios["right-prior"][1] < ratios["ata-icml"][1] < ratios["wrong-prior"][1]
    right, wrong = (
        read_prior(Path("out/sources", f"{name}-prior.py")).mean()[0] for name in ("right", "wrong")
    )
    assert right == pytest.approx(2 * np.arange(1, 21), rel=0.15)
    assert wrong == pytest.approx(right[::-1])


BOARD = "leaderboard --out out"
BENCH = "bench --jobs 1 --out out"
REGRET = f"{BENCH} --scenario icml2025-regret --rounds 5 --seeds 1"
TRACK = (
    "track --jobs 1 --out out --trace trace.csv --worker-column machine --duration-column seconds "
    "--round-column step --budget 3 --seeds 1"
)
TRACED = f"{BENCH} --trace trace.csv --worker-column machine --duration-column seconds --seeds 1"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{BENCH} --scenario nowhere --rounds 5", "there is no scenario 'nowhere'"),
        (
            f"{BENCH} --scenario alibaba-4",
            "made of alibaba_job_4.csv: give the folder of that file (--data)",
        ),
        (f"{BENCH} --trace trace.csv --data .", "--data only goes with --scenario"),
        (BENCH, "either --scenario or --trace"),
        (f"{REGRET} --worker-column machine", "--worker-column only goes with --trace"),
        (f"{REGRET} --policies ata,nobody", "there is no policy 'nobody'"),
        (f"{REGRET} --rounds 0", "rounds must be"),
        (f"{REGRET} --seeds -1", "seeds must be"),
        (f"{REGRET} --seed -1", "seed must be"),
        (f"{REGRET} --budget 0", "budget must be"),
        (f"{REGRET} --price nan", "price must be"),
        (f"{REGRET} --jobs 0", "jobs must be"),
        (f"{REGRET} --save-every nan", "save-every must be"),
        (f"{REGRET} --out trace.csv", "trace.csv is a file"),
        (f"{TRACED}", "needs --worker-column, --duration-column and --budget"),
        (
            f"{TRACED} --budget 2 --trace ragged.csv",
            "the file cannot be read: a line has more fields than the",
        ),
        (
            f"{TRACK}",
            (
                "nothing changes abruptly within 6 rounds of trace.csv: choose a scenario in which"
                " workers trade"
            ),
        ),
        (
            "track --out out --scenario changing-walk",
            "such as changing-permuted-linear-n51, or name the round with --",
        ),
        (f"{TRACK} --change 0", "change must be a whole number from 1"),
        (f"{TRACK} --change 6", "change must be below the number of rounds, 6, not 6"),
        (f"{TRACK} --change 3 --after 0", "after must be"),
        (
            f"{TRACK} --change 3 --policies race",
            "race plays ata_gym/TaskRace-v0: only allocations that sum",
        ),
        ("track --out out --scenario changing-spot", "away or die"),
        (f"{BOARD} --policies uta:speed=3", "uta"),
        (
            f"{BOARD} --scenarios paretto",
            "there is no scenario of the leaderboard 'paretto'; did you mean pareto",
        ),
        (
            f"{BOARD} --quick --scenarios many",
            "there is no quick scenario of the leaderboard 'many'",
        ),
        (f"{BOARD} --scenarios ,", "name at least one scenario"),
        (f"{BOARD} --scenarios alibaba-1 --data .", "no file alibaba_job_1.csv"),
        (
            f"{BOARD} --set unseen --scenarios regret",
            "there is no scenario of the leaderboard 'regret'",
        ),
        (
            f"{BOARD} --prices 0,cheap",
            "--prices must be numbers of at least 0, separated by commas",
        ),
        (f"{BOARD} --prices 0,-1", "--prices must be numbers of at least 0"),
        ("check ata --data .", "--data only goes with --scenario"),
        ("watch nowhere", "there is no scenario 'nowhere'"),
        ("watch --policies ,", "name at least one policy"),
        ("watch --policies utaa", "there is no policy 'utaa'"),
        ("watch --rounds 0", "rounds must be a whole number"),
        ("watch --speed 0", "speed must be a finite number above 0"),
        ("watch --seed -1", "seed must be a whole number"),
        ("policies atta", "there is no policy 'atta'; did you mean ata"),
        ("policies ata --env race", "--env is for the list: give it without a name"),
        ("policies ata --all", "--all is for the list: give it without a name"),
        ("policies --all --cost", "--cost measures one policy: give its name"),
        ("doctor . --address auto", "give either DIR or --address, and not both"),
        ("doctor .", "holds no results of ata-gym"),
        ("doctor --address here", "--address must be auto, or host:port"),
        ("doctor --address ray://here", "--address after ray:// must be auto, or host:port"),
        ("doctor --address ray://auto", "--address must be auto, or host:port"),
        ("scenarios five-worker", "there is no scenario 'five-worker'; did you mean five-workers"),
        ("scenarios five-workers --data .", "five-workers needs no data"),
        ("scenarios alibaba-1", "made of alibaba_job_1.csv: give the folder of that file (--data)"),
        ("scenarios --data .", "--data goes with the name of a recorded scenario"),
        ("demo --rounds 0", "rounds must be"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(refused, tmp_path, line, sentence):
    (tmp_path / "ragged.csv").write_text("machine,seconds\na,1\nb,1,2\n")
    before = sorted(tmp_path.rglob("*"))
    assert sentence in refused(line)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of POSIX")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{TRACED} --budget 2 --trace pipe.csv", "pipe.csv is a pipe: name a file"),
        ("pretrain --out pipe.safetensors", "pipe.safetensors cannot be written: it is a pipe"),
        ("pretrain --out taken/x.safetensors", "taken/x.safetensors cannot be written"),
        ("watch five-workers --out taken", "taken/who-waits.png cannot be written"),
        (
            "train --scenario icml2025-regret --problem cifar100 --data pipe.csv --out out",
            "pipe.csv is a pipe",
        ),
        (
            f"{REGRET} --policies learned:weights=pipe.safetensors",
            "pipe.safetensors is a pipe: name a",
        ),
        (f"{REGRET} --policies uta --out others", "others holds files that are not of ata-gym"),
        (
            "leaderboard --policies uta --jobs 1 --out taken",
            "taken is a file; the results need a folder",
        ),
    ],
)
def test_places_are_tried_before_the_work_and_left_as_they_are(
    refused,
    tmp_path,
    monkeypatch,
    line,
    sentence,
):
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("polars.read_csv", work)
    for target in (
        "studies.side_by_side.play.WatchedPolicy.play_round",
        "runner.jobs.play_jobs",
    ):
        monkeypatch.setattr(f"ata_gym.bench.{target}", work)
    if find_spec("torch"):
        monkeypatch.setattr("ata_gym.rl.pretraining.learned.Pretraining", work)
    for name in ("pipe.csv", "pipe.safetensors"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "taken").touch()
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "notes.txt").touch()
    before = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    assert sentence in refused(line)
    assert {path: path.stat().st_mode for path in tmp_path.rglob("*")} == before


@pytest.mark.skipif(os.name == "nt", reason="needs names of bytes")
@pytest.mark.parametrize(
    "line",
    [
        f"{REGRET} --out NAME",
        "report NAME",
        "report NAME trace.csv",
        "doctor NAME",
        "what-if NAME",
        "check NAME:Policy",
        f"{TRACED} --budget 2 --trace NAME",
        f"{REGRET} --loss-curve NAME",
        "scenarios NAME",
        "watch --out NAME",
        f"{REGRET} --policies learned:weights=NAME",
        f"{BOARD} --data NAME",
        "pretrain --out NAME.safetensors",
    ],
)
def test_bytes_that_are_no_text_are_refused_before_the_work(refused, tmp_path, line):
    before = sorted(tmp_path.rglob("*"))
    assert "b\\xffd" in refused(line.replace("NAME", os.fsdecode(b"b\xffd"))).replace("\\\\", "\\")
    assert sorted(tmp_path.rglob("*")) == before


def test_warmup_compiles_all_kernels_that_are_in_the_sources(run, monkeypatch, tmp_path):
    module = import_module("ata_gym.cli.warmup")
    root = Path(__file__).parents[2]
    found = module.kernels()
    files = [*(root / "ata_gym").rglob("*.py"), *(root / "policies").rglob("*.py")]
    # What trains needs an extra.
    texts = [
        path.read_text("utf-8") for path in files if not {"training", "trained"} & {*path.parts}
    ]
    written = [line for text in texts for line in text.splitlines() if line.startswith("@kernel(")]
    assert len(found) == len(set(found)) == len(written) > 50
    monkeypatch.setattr(module, "kernels", lambda: ["ata_gym.simulation.keys:_derive_key"])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))  # of the process that it starts
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "cache"))
    assert "kernels are compiled, and kept in " in run("warmup --jobs 1").stdout
    (kept,) = (tmp_path / "cache" / "ata-gym").iterdir()
    assert kept.name.startswith("keys._derive_key-")
    monkeypatch.setattr(module, "kernels", lambda: ["ata_gym.simulation.keys:no_such"])
    assert "1 of 1 kernels are not compiled" in run("warmup --jobs 1", code=2).stderr


def test_warmup_says_so_if_a_kernel_that_was_compiled_could_not_be_kept(run, monkeypatch, tmp_path):
    """A process that keeps nothing stands for one on a full disk."""
    module = import_module("ata_gym.cli.warmup")
    monkeypatch.setattr(module, "kernels", lambda: ["ata_gym.simulation.keys:_derive_key"])
    child = "import sys\nfor name in sys.stdin: print(flush=True)"
    monkeypatch.setattr("ata_gym.utils.kernels.processes._CHILD", child)
    monkeypatch.setattr("ata_gym.simulation.keys._derive_key._ufunc", None)
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "cache"))
    said = run("warmup --jobs 1", code=2).stderr
    assert "1 of 1 kernels could not be kept in" in said
