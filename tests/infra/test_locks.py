"""The locked requirements: versions, and the hash of each file that may be installed."""

import re
from pathlib import Path

import pytest

LOCKS = sorted((Path(__file__).parents[2] / "requirements").glob("*.txt"))
LOCKS = [path for path in LOCKS if path.stem != "excludes"]
PIN = re.compile(
    r"^([a-z0-9][a-z0-9.\[\],-]*==[^ \n]+)(?: ;[^\\\n]*)?((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$", re.MULTILINE
)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_lock_pins_versions_with_hashes_and_names_no_place(path: Path) -> None:
    text = path.read_text()
    pins = {match[1]: match[2] for match in PIN.finditer(text)}
    requirements = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(pins) == len(requirements)
    without = [pin for pin, hashes in pins.items() if not hashes]
    assert without == [pin for pin in pins if re.fullmatch(r"torch==.*\+cpu", pin)]
    assert "://" not in text
    assert "--find-links" not in text
