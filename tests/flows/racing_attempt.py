"""Attempts at outputs that another process attempts at the same time, each through claim, tables and manifest.

Arguments: this process's name, the number of attempts, a seed, the place of the outputs as JSON, and a
folder on this machine in which the two processes wait for each other. Prints how each attempt ended, as JSON. All
documents are unreadable, so that nothing must be read.
"""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from memagent_batch.data.store.location import Location
from memagent_batch.errors import SupersededError
from memagent_batch.run import claim, parts
from memagent_batch.run.run import ActiveRun, begin_run
from tests.runs import recorded_nights
from tests.runs.recorded_nights import Nights

DOCUMENTS = 6
PARTS = 3
MEETING_SECONDS = 60.0
"""Longest wait for the other process; one that has failed never comes."""
STEP_SECONDS = 0.02
"""Longest pause between two steps, and between asking for the claim and what is done under it."""


def main() -> None:
    name, count, seed, settings, folder = sys.argv[1:]
    rng = random.Random(f"{name}-{seed}")
    parts.PART_READINGS = DOCUMENTS // PARTS
    for module, function in ((claim, "require_claim"), (recorded_nights, "write_tables")):
        pause_after(module, function, rng)
    outputs = Location(**json.loads(settings))
    ends = []
    for number in range(int(count)):
        meet(folder, f"start-{number}", name=name)
        time.sleep(rng.uniform(0, 20 * STEP_SECONDS) * rng.random())
        ends.append(attempt(outputs / str(number), folder if number == 0 else "", name=name))
    print(json.dumps(ends))


def meet(folder: str, moment: str, *, name: str) -> None:
    """Waits for the other process."""
    (Path(folder) / f"{moment}-{name}").touch()
    deadline = time.monotonic() + MEETING_SECONDS
    while len(list(Path(folder).glob(f"{moment}-*"))) < 2:
        if time.monotonic() > deadline:
            sys.exit("the other process did not come")
        time.sleep(0.002)


def attempt(output: Location, folder: str, *, name: str) -> dict[str, Any]:
    """One attempt, as the job makes it.

    With a folder to meet in, both have claimed the output before one of them goes on, so that one is superseded.
    """
    runs: list[ActiveRun] = []

    def begun(*arguments: Any, **named: Any) -> ActiveRun:
        runs.append(begin_run(*arguments, **named))
        if folder:
            meet(folder, "claimed", name=name)
        return runs[-1]

    recorded_nights.begin_run = begun  # type: ignore[attr-defined]
    superseded = None
    try:
        Nights(output).run(dict.fromkeys(f"d{number}" for number in range(DOCUMENTS)), {"q": "Who?"})
    except SupersededError as error:
        superseded = str(error)
    finally:
        recorded_nights.begin_run = begin_run  # type: ignore[attr-defined]
    return {"run_id": runs[0].run_id, "superseded": superseded}


def pause_after(module: Any, function: str, rng: random.Random) -> None:
    """Makes time pass after a step, as on a machine that stalls: the claim stood, and may stand no more."""
    take = getattr(module, function)

    def slow(*arguments: Any, **named: Any) -> Any:
        taken = take(*arguments, **named)
        time.sleep(rng.uniform(0, STEP_SECONDS))
        return taken

    setattr(module, function, slow)


if __name__ == "__main__":
    main()
