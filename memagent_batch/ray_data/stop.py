"""Records why a run stops before its end, for `memagent status`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memagent_batch.errors import MemagentError
from memagent_batch.files.location import Location
from memagent_batch.ray_data.leaving import Leave
from memagent_batch.runs.state import write_stop_note


@contextmanager
def noted_stop(output: Location, *, run_id: str) -> Iterator[None]:
    """Runs the block, and writes a note when it raises. A note that can't be written is left out: it is a help only."""
    try:
        yield
    except BaseException as error:
        with suppress(MemagentError):
            write_stop_note(output, run_id=run_id, why=_why_stopped(error))
        raise


def _why_stopped(error: BaseException) -> str:
    match error:
        case Leave():
            return str(error.cause)
        case KeyboardInterrupt():
            return "interrupted, as by Ctrl-C"
        case MemagentError():
            return str(error)
        case _:
            return type(error).__name__
