"""Golden tables: records what the command line writes, to compare another version of the code with it.

    python tests/golden record DIR      runs the jobs with this checkout and keeps their tables in DIR
    python tests/golden compare DIR     runs them again and says what differs from DIR; exit code 1 if anything does

Recordings hold on one machine only, since a model's numerics depend on its CPU.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from comparison import compare_recordings
from golden_jobs import JOBS, record_jobs

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Records or compares; returns the exit code."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        work, fresh = Path(folder) / "work", Path(folder) / "kept"
        if options.what == "record":
            if options.folder.exists() and any(options.folder.iterdir()):
                sys.exit(f"{options.folder} is not empty; choose another folder")
            record_jobs(options.jobs, code=options.code, work=work, kept=options.folder)
            return 0
        if options.recorded is None:
            record_jobs(options.jobs, code=options.code, work=work, kept=fresh)
        return _compare(options.folder, options.recorded or fresh, jobs=options.jobs)


def _compare(before: Path, after: Path, *, jobs: list[str]) -> int:
    lines = compare_recordings(before, after, jobs=jobs)
    print("\n".join(lines) or "equal")
    return 1 if lines else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tests/golden", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="where the recordings are")
    parser.add_argument("--jobs", nargs="+", default=[], choices=[job.__name__ for job in JOBS], help="only these")
    parser.add_argument("--code", type=Path, default=CHECKOUT, help="the checkout that is run (default: this one)")
    parser.add_argument("--recorded", type=Path, help="compare with these recordings; run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
