"""`memagent status` and `memagent partial`: what a running, finished or dead run has done, and its answers so far."""

import json
import sys
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import OutputCommand

if TYPE_CHECKING:
    from memagent_batch.runs.state import ProgressNote

BAR_CHARACTERS = 30
"""Length of the bar."""


class ShowStatus(OutputCommand):
    """Shows what a running, finished or dead run has done, by what it has noted in its output."""

    command = "memagent status"
    examples = ("memagent status out/", "memagent status s3://bucket/scan/")

    def run(self) -> None:
        from memagent_batch.runs.state import read_state

        state = read_state(self.location)
        print(json.dumps(state, indent=2, ensure_ascii=False))
        if state["progress"] and sys.stderr.isatty():
            print(progress_line(state["progress"]), file=sys.stderr)


class Partial(OutputCommand):
    """Writes the answers that a running or stopped run has so far to `partial/answers.parquet`, marked as incomplete.
    The tables and the run stay as they are.
    """

    command = "memagent partial"
    examples = ("memagent partial out/", "memagent partial s3://bucket/scan/")
    page = "docs/how-to/nightly-scans.md"

    def run(self) -> None:
        from memagent_batch.flows.partial import write_partial

        print(json.dumps(write_partial(self.location), indent=2))


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
