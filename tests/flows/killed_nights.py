"""Nights of a scan, each killed with SIGKILL right before its n-th change of the output, for every n that there is.

Arguments: settings of the outputs as JSON (`output`, `storage_options`), and the distance between two moments that are
struck. Each moment has its own output, `output/n`. Prints the number of moments. Children are forked before
anything but imports has been done, so that no thread is lost with the fork.

With `documents` and `model` among the settings, the nights are real jobs over text files in that folder.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiobotocore.client import AioBaseClient

from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents import listing
from memagent_batch.data.store.location import Location
from memagent_batch.errors import MemagentError
from memagent_batch.run import parts
from memagent_batch.run.flows.answer import answer
from tests.jobs import small_job
from tests.runs.recorded_nights import Nights

QUESTIONS = {"q": "Who?"}
SUNDAY: dict[str, str | None] = {name: f"{name} on Sunday" for name in "abc"}
MONDAY: dict[str, str | None] = {"a": "fox", "b": "dog", "c": "cat", "d": None}
TUESDAY: dict[str, str | None] = {"a": "fox", "b": "dog", "c": "lynx", "e": "owl"}
CHANGES = frozenset({"os.rename", "os.remove", "os.link", "os.mkdir"})
"""Events of the interpreter that change a disk; a file is written before it is renamed."""
REQUESTS = frozenset({"PutObject", "DeleteObject"})


def main() -> None:
    settings, stride = json.loads(sys.argv[1]), int(sys.argv[2])
    parts.PART_READINGS = 1
    listing.UNSURE_SECONDS = 0.0  # else no file is known again
    run = partial(answered, settings=settings) if "model" in settings else night
    for number in itertools.count():
        output = Location(uri=f"{settings['output']}/{number}", storage_options=settings["storage_options"])
        for documents in (SUNDAY, MONDAY):
            if in_a_fork(partial(run, output, documents)) != 0:
                sys.exit("Sunday or Monday failed")
        ended = in_a_fork(partial(killed_tuesday, output, number * stride, run=run))
        if ended != signal.SIGKILL:
            print(number if ended == 0 else f"Tuesday failed: {ended}")
            return


def night(output: Location, documents: dict[str, str | None]) -> None:
    """A night that keeps replaced table files of one night: Tuesday removes those that Monday has replaced."""
    Nights(output).run(documents, QUESTIONS, record={"keep_nights": 1})


def answered(output: Location, documents: dict[str, str | None], *, settings: dict[str, str]) -> None:
    """The same by the real job, over text files."""
    answer(real_job(output, documents, folder=Path(settings["documents"]), model=settings["model"]))


def real_job(output: Location, documents: dict[str, str | None], *, folder: Path, model: str) -> JobConfig:
    """The job over these text files, which are written if they are others."""
    wanted = {f"{name}.txt": text for name, text in documents.items() if text is not None}
    for file in folder.iterdir():
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)
    settings = {"documents": str(folder), "output": output.uri, "ask": ("Who?",), "record": {"keep_nights": 1}}
    return small_job(folder, model, **settings)


def killed_tuesday(output: Location, moment: int, *, run: Callable[[Location, dict[str, str | None]], None]) -> None:
    """Tuesday, which ends right before change number `moment`, counted from 0, if there are as many."""
    changes = itertools.count()

    def count(event: str) -> None:
        if event in CHANGES | REQUESTS and next(changes) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    call = AioBaseClient._make_api_call

    async def counted(client: Any, operation: str, arguments: Any) -> Any:
        count(operation)
        return await call(client, operation, arguments)

    AioBaseClient._make_api_call = counted
    sys.addaudithook(lambda event, arguments: count(event) if _is_below(output, event, arguments) else None)
    run(output, TUESDAY)


def _is_below(output: Location, event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the interpreter is about to change a disk there, and not a temporary file of the driver."""
    return event in CHANGES and output.path in os.fsdecode(arguments[0])


def in_a_fork(work: Callable[[], object]) -> int:
    """Runs it in its own process; 0, or the number of the signal or of the status that it ended with."""
    if (child := os.fork()) == 0:
        ended = 1
        try:
            work()
            ended = 0
        except MemagentError as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(ended)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    main()
