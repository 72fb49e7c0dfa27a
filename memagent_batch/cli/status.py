"""`memagent status`: what a running, finished or dead run has done, from its log and manifest alone."""

import json
import sys
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import OutputCommand

if TYPE_CHECKING:
    from memagent_batch.runs.state import ProgressNote

BAR_CHARACTERS = 30
"""Length of the bar."""


class ShowStatus(OutputCommand):
    """Shows what a running, finished or dead run has done, from its log and manifest alone."""

    command = "memagent status"
    examples = ("memagent status out/", "memagent status s3://bucket/scan/")

    def run(self) -> None:
        from memagent_batch.runs.state import read_state

        state = read_state(self.location)
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
