"""`memagent status`: what a running, finished or dead run has done, from its log and manifest alone."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of

if TYPE_CHECKING:
    from memagent_batch.runs.state import ProgressNote

BAR_CHARACTERS = 30
"""Length of the bar."""
MANUAL = Manual(
    command="memagent status",
    about="Shows what a running, finished or dead run has done, from its log and manifest alone.",
    examples=("memagent status --output out/", "memagent status --output s3://bucket/scan/"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the state as JSON; returns the exit code."""
    return run_command(partial(_status, sys.argv[1:] if arguments is None else arguments))


def _status(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--output", required=True, help="where the run writes: a folder or any fsspec URL")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.runs.state import read_state

    state = read_state(output_of(options))
    print(json.dumps(state, indent=2, ensure_ascii=False))
    if state["progress"] and sys.stderr.isatty():
        print(progress_line(state["progress"]), file=sys.stderr)


def progress_line(note: "ProgressNote") -> str:
    """How far a run is, as a line with a bar."""
    filled = round(BAR_CHARACTERS * note["share_read"])
    end = note["expected_end_at"]
    parts = [
        f"readings {note['readings_done']:,}/{note['readings_asked']:,}",
        f"|{'█' * filled}{' ' * (BAR_CHARACTERS - filled)}| {note['share_read']:.0%}",
        f"{note['tokens_per_second']:,.0f} tokens/s",
        *([f"ends about {end[:16].replace('T', ' ')} UTC"] if end else []),
    ]
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
