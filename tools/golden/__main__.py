"""Golden tables: records what the command line writes, to compare another version of the code with it.

    python -m tools.golden record DIR      runs the jobs with this checkout and keeps their tables in DIR
    python -m tools.golden compare DIR     runs them again and says what differs from DIR; exit code 1 if anything does

Recordings hold on one machine only, since a model's numerics depend on its CPU.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tools.golden.comparison import compare_recordings
from tools.golden.golden_jobs import JOBS, record_jobs

NAMES = [job.__name__ for job in JOBS]
CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Records or compares; returns the exit code."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        work, fresh = Path(folder) / "work", Path(folder) / "kept"
        if options.what == "record":
            _require_absent(options.folder, options.jobs or NAMES)
            failures = record_jobs(options.jobs, code=options.code, work=work, kept=options.folder)
            return _end(failures, good="recorded")
        failures = [] if options.recorded else record_jobs(options.jobs, code=options.code, work=work, kept=fresh)
        lines = compare_recordings(options.folder, options.recorded or fresh, jobs=options.jobs)
        return _end(failures + lines, good="equal")


def _require_absent(folder: Path, names: list[str]) -> None:
    there = [name for name in names if (folder / name).exists()]
    if there:
        sys.exit(f"{folder} holds {', '.join(there)}; remove them, choose another folder, or pass --jobs")


def _end(lines: list[str], *, good: str) -> int:
    """Prints what is wrong, or that nothing is."""
    print("\n".join(lines) or good)
    return 1 if lines else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.golden", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="where the recordings are")
    parser.add_argument("--jobs", nargs="+", default=[], choices=NAMES, help="only these")
    parser.add_argument("--code", type=Path, default=CHECKOUT, help="the checkout that is run (default: this one)")
    parser.add_argument("--recorded", type=Path, help="compare with these recordings; run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
