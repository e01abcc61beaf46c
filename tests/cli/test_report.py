import json
import os
import re
import shlex
import sys
from functools import partial
from html import unescape
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.report.page.render import NAME
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.store.note import NOTE, read_note, write_note
from ata_gym.utils.files.manifest import write_listed
from ata_policies.allocation.baselines import Uta


def test_the_command_writes_the_page_that_report_writes(run, tmp_path):
    line = (
        "bench --scenario icml2025-regret --rounds 9 --seeds 2 --jobs 1 --policies ofta --out 'my"
        " results'"
    )
    told = run(line).stdout
    page = tmp_path / "my results" / NAME
    assert "my results/report.html" in told
    html = page.read_text("utf-8")
    words = shlex.split(
        unescape(re.search(r'id="reproduce".*?<code>(.*?)</code>', html, re.DOTALL)[1]),
    )
    assert sorted(words) == sorted(["ata-gym", *shlex.split(line)])
    assert "other.html" in run("report 'my results' --out deep/other.html").stdout
    assert (tmp_path / "deep" / "other.html").read_text("utf-8") == html


@pytest.mark.usefixtures("benched")
def test_figures_and_tables_for_a_paper_are_left_beside_the_page(run, refused):
    told = run("report out --figure pdf --table latex").stdout
    left = {file.relative_to("out").as_posix() for file in Path("out").rglob("*.pdf")}
    assert left == {f"plots/{name}.pdf" for name in ("runtime", "worker_time", "regret")}
    assert all(f"out/{name}" in told for name in (*left, "tables.tex"))
    assert "toprule" in Path("out/tables.tex").read_text("utf-8")
    assert ", 0 damaged" in run("doctor out").stdout
    told = run("report out out --out both/compared.html --table latex").stdout
    assert [file.name for file in Path("both").iterdir()] == ["compared.html", "tables.tex"]
    assert "both/tables.tex" in told
    assert "need --out FILE" in refused("report out out --figure pdf")
    assert not Path("both/plots").exists()


def test_no_page_is_written_from_a_configuration_that_is_cut_in_half_nor_into_a_pipe(
    benched,
    refused,
    monkeypatch,
):
    before = (benched.out / NAME).read_bytes()
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe.html")
        with monkeypatch.context() as patch:
            # the door is tried before the work
            patch.setattr(
                "ata_gym.bench.studies.reading.read",
                None,
            )
            assert "pipe.html cannot be written: it is a pipe" in refused(
                "report out --out pipe.html",
            )
        assert Path("pipe.html").is_fifo()
    assert "cannot be written: it is a folder" in refused("report out --out .")
    config = Path("out", "config.json")
    config.write_bytes(config.read_bytes()[: config.stat().st_size // 2])
    assert "out/config.json is damaged" in refused("report out")
    assert Path("out", NAME).read_bytes() == before


@pytest.mark.usefixtures("benched")
def test_folders_without_a_page_are_refused_with_what_to_do(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    note = read_note(Path("out"))
    assert "there is no folder nowhere" in refused("report nowhere")
    assert "empty holds no results of ata-gym" in refused("report empty")
    for content, said in (
        ("{", "about.json is damaged"),
        ("{}", "study is missing"),
        (
            json.dumps({**note, "study": "cooking"}),
            "'cooking', a study that this version of ata-gym does not have",
        ),
        (json.dumps({"study": "bench", "command": []}), "another version of ata-gym"),
    ):
        write_listed(Path("out", NOTE), partial(Path.write_text, data=content))
        assert said in refused("report out")
    Path("out", NOTE).unlink()
    assert "run the command again with the same --out" in refused("report out")
    write_note(Path("out"), note.pop("study"), note.pop("command"), note)
    whole = Path("out/results/uta.parquet").read_bytes()
    Path("out/results/uta.parquet").write_bytes(whole[:-9])
    assert "uta.parquet is damaged" in refused("report out")
    for name in ("uta", "ofta", "gta"):
        Path(f"out/results/{name}.json").unlink()
    assert "no policy has finished in out" in refused("report out")


def test_two_folders_are_compared_seed_by_seed_and_what_is_alike_has_one_row(
    benched,
    run,
    monkeypatch,
):
    mine = type("Mine", (Uta,), {"__module__": "mine"})
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))
    monkeypatch.setattr("mine.Mine", mine, raising=False)
    line = (
        benched.line.replace("--seeds 2", "--seeds 6")
        .removesuffix("out")
        .replace("gta", "mine:Mine,{}")
    )
    run(f"{line} before".format("gta"))
    mine.allocate = lambda _, state: np.tile(
        5 * np.eye(1, 20, dtype=np.int64),
        (len(state.round), 1),
    )
    run(f"{line} after".format("default"))
    told = run("report before after --out compared.html").stdout
    a, b = (
        pl.read_parquet(f"{folder}/results/mine%3AMine.parquet") for folder in ("before", "after")
    )
    ratios = [
        ends(b)[name]["mine:Mine"] / ends(a)[name]["mine:Mine"]
        for name in ("runtime", "total_worker_time")
    ]
    means = [100 * abs(float(np.exp(np.log(ratio).mean())) - 1) for ratio in ratios]
    said = re.search(
        r"mine:Mine compared with A: (\S+) % \w+ runtime .*?, (\S+) % \w+ worker time", told
    )
    assert [float(one.replace(",", "")) for one in said.groups()] == pytest.approx(means, rel=0.06)
    assert [
        told.count(f"\n {name} ") for name in ("ofta", "uta", "mine:Mine (A)", "mine:Mine (B)")
    ] == [1, 1, 1, 1]
    assert (
        "The same in A and B: ofta, uta.\nOnly in A: gta.\nOnly in B: distribution-learner.\n"
        in told
    )
    assert "beside A" not in run("report after after").stdout
    # table, card
    assert Path("compared.html").read_text("utf-8").count('data-name="mine:Mine (B)"') == 2


def test_folders_that_cannot_be_compared_are_refused_with_what_differs(benched, run, refused):
    run(benched.line.replace("--rounds 20", "--rounds 21").removesuffix("out") + "longer")
    said = "longer (here) cannot be compared with out (there): rounds is 20 there and 21 here"
    assert said in refused("report out longer")
    assert "no results of ata-gym" in refused("report out .")
    assert "cannot be written: it is a folder" in refused("report out out --out .")
    Path("longer/results/gta.json").unlink()
    assert "Not finished in A: gta." in run("report longer longer").stdout
    note = read_note(Path("out"))
    for change, said in (
        ({"study": "train"}, "only results of bench"),
        ({"price": None}, "another version of ata-gym"),
    ):
        kept = {name: value for name, value in (note | change).items() if value is not None}
        write_listed(Path("out", NOTE), partial(Path.write_text, data=json.dumps(kept)))
        assert said in refused("report out out")
