"""The scripts of findings/ are run outside of the tests, since they install packages; here their
form is checked.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_says_its_versions_and_installs_them_alone(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    comments = text.partition("\n. ")[0].splitlines()[1:]
    assert len(comments) > 3
    assert all(line.startswith("#") for line in comments)
    installs = re.findall(r"^ *install(?:_alone)? (.*)$", text, re.MULTILINE)
    requirements = [one for line in installs for one in line.split()]
    assert requirements
    assert all(re.fullmatch(r"[a-z0-9_.\[\]-]+==[0-9][\w.]*", one) for one in requirements)
    versions = " ".join(comments[: comments.index("#")])
    for name, version in (one.split("==") for one in requirements):
        named = name.partition("[")[0] in versions and version in versions
        assert named or name in {
            "numpy",
            "torch",
            "setuptools",
        }, f"the first lines do not name {name} {version}"
    assert "expect " in text
    assert not re.search(r"ata[-_]gym|ata_policies", text)
    assert script.stat().st_mode & 0o100


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_findings_are_programs_of_bash() -> None:
    for script in (*SCRIPTS, FOLDER / "fresh.bash"):
        subprocess.run(["bash", "-n", str(script)], check=True)
