"""`memagent status`: what a running, finished or dead run has done."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import JsonCommand, OutputCommand
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url
from memagent_batch.run.state import minute_of

if TYPE_CHECKING:
    from memagent_batch.run.state import ProgressNote, RunState

BAR_CHARACTERS = 30
"""Length of the bar."""


class ShowStatus(OutputCommand, JsonCommand):
    """Shows the state of the latest run: running, finished, stopped or killed, and what it has done."""

    command = "memagent status"
    examples = ("memagent status out/", "memagent status s3://bucket/scan/ --json")

    def run(self) -> None:
        from memagent_batch.run.state import read_state

        state = read_state(self.location)
        self.report(state, status_lines(state, output=shlex.quote(mask_url(self.output))))


NEXT = {
    "running or killed": "if no process runs any more, give the same command again: it goes on from the log. A run "
    "that finds its disk full can't note why it stopped: look at its last line",
    "stopped": "remove the cause, and give the same command again: it goes on from the log",
    "incomplete": "give the same command again: it reads what could not be read",
}
"""What to do, by the state of a run."""


def status_lines(state: "RunState", *, output: str) -> Iterator[str]:
    """What a person reads of a run's state."""
    yield f"run {state['run_id']}: {_when(state)}"
    asked, counts, progress = quantity(state["readings_asked"], "reading"), state["counts"], state["progress"]
    if "documents_forgotten" in state:
        erased = quantity(state["documents_forgotten"], "document")
        pending = f"memagent forget is erasing {erased}: if no process runs any more, give its command again"
        yield pending if state["erasure_pending"] else f"memagent forget has erased {erased} for good"
    if counts:
        not_read = f", {counts['not_read']:,} not read" if counts["not_read"] else ""
        yield f"{asked} asked for: {counts['ok']:,} answered, {counts['failed']:,} failed{not_read}"
    elif progress:
        yield f"{asked} asked for; at {minute_of(progress['at'])} {progress['readings_failed']:,} had failed"
        yield progress_line(progress)
    else:
        yield f"{asked} asked for"
    if "shown_run" in state:
        yield f"answers, page and summary are still those of run {state['shown_run']}"
    yield ""
    yield f"next: {NEXT.get(state['state'], f'memagent page {output}')}"
    if state["state"] == "finished":
        yield f"      memagent show {output} DOCUMENT_ID    # answers and sentences of one document"
        if counts and counts["failed"]:
            yield "      the same command with --retry-failed reads what failed again"


def _when(state: "RunState") -> str:
    if state["state"] == "stopped":
        return f"stopped at {minute_of(state['stopped_at'])}: {state['stopped_because']}"
    if "last_sign_of_life_seconds_ago" in state:
        return f"{state['state']}; last sign of life {state['last_sign_of_life_seconds_ago']:,} s ago"
    return f"{state['state']} at {minute_of(state['finished_at'])}"


def progress_line(note: "ProgressNote") -> str:
    """How far a run is, as a line with a bar."""
    filled = round(BAR_CHARACTERS * note["share_read"])
    end = note["expected_end_at"]
    parts = [
        f"readings {note['readings_done']:,}/{note['readings_asked']:,}",
        f"|{'█' * filled}{' ' * (BAR_CHARACTERS - filled)}| {note['share_read']:.0%}",
        f"{note['tokens_per_second']:,.0f} tokens/s",
        *([f"ends about {minute_of(end)}"] if end else []),
    ]
    return "  ".join(parts)
