"""``python -m docs.gpu``: run the tests that need a GPU, and write into their page what came of them.

The page has a table with a row for each test: the risk that it settles, the test, and what came of it on which device.
Without a GPU the rows stay as they are.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "tests" / "gpu" / "README.md"
ROW = re.compile(r"^\| (?P<risk>.+?) \| `(?P<test>tests/\S+::\w+)` \| .* \|$", re.MULTILINE)


def marked() -> set[str]:
    """The tests marked ``gpu``, each by its file and name, without benchmarks."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        all_have = [text for text in map(ast.unparse, body) if text.startswith("pytestmark = ")]
        for test in body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                marks = [*all_have, *map(ast.unparse, test.decorator_list)]
                own = " ".join(mark for mark in marks if not mark.startswith("pytest.mark.parametrize"))
                if "pytest.mark.gpu" in own and "pytest.mark.benchmark" not in own:
                    found.add(f"{path.relative_to(ROOT).as_posix()}::{test.name}")
    return found


def outcomes(report: str) -> dict[str, str]:
    """What came of each test in a report of pytest in JUnit's form, over all of its parameters."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case in ET.fromstring(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        bad = next((one for one in case if one.tag in {"failure", "error", "skipped"}), None)
        if bad is None:
            counts[name]["passed"] += 1
        elif bad.tag == "skipped":
            counts[name][f"skipped ({bad.get('message', '').partition(', and')[0]})"] += 1
        else:
            counts[name]["failed"] += 1
    return {
        name: ", ".join(f"{number} {what}" for what, number in sorted(count.items())) for name, count in counts.items()
    }


def written(page: str, found: dict[str, str], device: str, torch: str, date: str) -> str:
    """A page with what was found in the rows of its table."""

    def row(match: re.Match[str]) -> str:
        if (outcome := found.get(match["test"])) is None:
            return match[0]
        return f"| {match['risk']} | `{match['test']}` | {outcome} | {device} | {torch} | {date} |"

    return ROW.sub(row, page)


def main() -> None:
    """Run the tests, and write the page if there is a GPU; the exit code is that of pytest."""
    import torch  # noqa: PLC0415 - pages are tested where it is missing, too

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = ("tests", "-m", "gpu and not benchmark", f"--junitxml={report}")
        code = subprocess.run([sys.executable, "-m", "pytest", *chosen], cwd=ROOT, check=False).returncode
        if (count := torch.cuda.device_count()) == 0:
            print(f"{PAGE.relative_to(ROOT)} stays as it is: no GPU is here")
        elif report.is_file():
            device = f"{count} x {torch.cuda.get_device_name()}"
            found, date = outcomes(report.read_text(encoding="utf-8")), datetime.now(UTC).date().isoformat()
            page = written(PAGE.read_text(encoding="utf-8"), found, device, torch.__version__, date)
            PAGE.write_text(page, encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
