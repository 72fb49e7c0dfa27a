"""Attempts at outputs that another process attempts at the same time, each through claim, tables and manifest.

Arguments: this process's name, the number of attempts, a seed, settings as JSON whose `output` holds the outputs, and a
folder on this machine in which the two processes wait for each other. Prints how each attempt ended, as JSON.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.documents.document_index import INDEX_SCHEMA
from memagent_batch.documents.questions import read_questions
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import SupersededError
from memagent_batch.executors import write
from memagent_batch.executors.write import write_tables
from memagent_batch.runs import claim
from memagent_batch.runs import parts as planned_parts
from memagent_batch.runs.claim import ANSWER_TABLES, remove_leftovers, removed_on_failure
from memagent_batch.runs.history import recorded_plan, repair_last_run_record
from memagent_batch.runs.parts import attach_not_read, collect_not_read, kept_parts, plan_parts
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.record import used_files
from memagent_batch.runs.run import begin_run, close_run
from memagent_batch.store.turn_log.index import scan_log
from memagent_batch.wiring import ReaderIdentity, make_output

DOCUMENTS = 6
PARTS = 3
MEETING_SECONDS = 60.0
"""Longest wait for the other process; one that has failed never comes."""
STEP_SECONDS = 0.02
"""Longest pause between two steps, and between asking for the claim and what is done under it."""


def main() -> None:
    name, count, seed, settings, folder = sys.argv[1:]
    rng = random.Random(f"{name}-{seed}")
    pause_after_claim(rng)
    planned_parts.PART_READINGS = DOCUMENTS // PARTS
    job = job_of(**json.loads(settings))
    ends = []
    for number in range(int(count)):
        meet(folder, f"start-{number}", name=name)
        time.sleep(rng.uniform(0, 20 * STEP_SECONDS) * rng.random())
        meeting = partial(meet, folder, "claimed", name=name) if number == 0 else None
        ends.append(attempt(job.model_copy(update={"output": f"{job.output}/{number}"}), rng, meeting=meeting))
    print(json.dumps(ends))


def meet(folder: str, moment: str, *, name: str) -> None:
    """Waits for the other process."""
    (Path(folder) / f"{moment}-{name}").touch()
    deadline = time.monotonic() + MEETING_SECONDS
    while len(list(Path(folder).glob(f"{moment}-*"))) < 2:
        if time.monotonic() > deadline:
            sys.exit("the other process did not come")
        time.sleep(0.002)


def attempt(job: JobConfig, rng: random.Random, *, meeting: Callable[[], None] | None) -> dict[str, Any]:
    """One attempt, as the job makes it; all documents are unreadable, so that nothing must be read.

    With a meeting, both have claimed the output before one of them goes on, so that one is superseded.
    """
    place = {"path": "p", "format": "text", "start": 0, "stop": 9, "num_bytes": 9, "error": "null"}
    rows = [{"document_id": f"d{n}", "document_hash": text_hash(str(n)), **place} for n in range(DOCUMENTS)]
    asked = Plan(pa.Table.from_pylist(rows, schema=INDEX_SCHEMA), read_questions(None, ask=["Who?"]), samples=1)
    output, reader = make_output(job), ReaderIdentity(fingerprint="f", parts={})
    run = begin_run(output, job, reader=reader, plan=asked)
    if meeting:
        meeting()
    try:
        before, index = repair_last_run_record(output), scan_log(output, fingerprint="f")
        parts = attach_not_read(plan_parts(asked, index), collect_not_read([]))
        time.sleep(rng.uniform(0, STEP_SECONDS))
        remove_leftovers(output, tables=ANSWER_TABLES, run_id=run.run_id)
        kept, reports = kept_parts(output), []
        with removed_on_failure(output, tables=ANSWER_TABLES, run_id=run.run_id):
            for part in parts:
                reports += write_tables(part, projection=run.projection, kept=kept).to_pylist()
                time.sleep(rng.uniform(0, STEP_SECONDS))
        recorded, log_files = recorded_plan(asked, index), used_files(output, index)
        close_run(run, reports=reports, recorded=recorded, log_files=log_files, before=before)
    except SupersededError as error:
        return {"run_id": run.run_id, "superseded": str(error)}
    return {"run_id": run.run_id, "superseded": None}


def pause_after_claim(rng: random.Random) -> None:
    """Makes time pass between the answer that the claim stands and what is done next, as on a machine that stalls."""
    ask = claim.require_claim

    def slow(*arguments: Any, **named: Any) -> None:
        ask(*arguments, **named)
        time.sleep(rng.uniform(0, STEP_SECONDS))

    for module in (claim, write):
        module.require_claim = slow  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
