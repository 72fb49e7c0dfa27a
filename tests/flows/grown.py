"""Documents that grow from night to night, read by an engine whose every word depends on its whole prompt."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.errors import BoundReachedError
from memagent_batch.files.location import Location
from memagent_batch.flows.check import check
from memagent_batch.flows.plan import last_versions, scan_plan
from memagent_batch.inputs.samples import sample_documents
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.ray_data.write import write_tables
from memagent_batch.runs.finalise import close_run
from memagent_batch.runs.history.history import keep_last_run, recorded_plan, write_begun_plan
from memagent_batch.runs.manifest import Manifest, require_manifest
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.record.sums import list_log
from memagent_batch.runs.run import begin_run
from memagent_batch.runs.tables.parts import attach_not_read, collect_not_read, kept_parts
from memagent_batch.wiring import make_documents, make_output
from tests import prompt_dependent_engine
from tests.inputs.lake.forms import indexed
from tests.ray_data.progress.silent_board import SilentBoard

QUESTIONS = ("Who?", "Where?")
LINE = "On day {day} of {name} the fox went over {day} hills and met {name} again, and nobody else was there.\n"
OWN_COLUMNS = {"run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}
"""Columns that say who read when, and what the log held."""


def text_of(name: str, *, days: int) -> str:
    """A diary of so many days; each takes a little more than a chunk."""
    return "".join(LINE.format(day=day, name=name) for day in range(days))


class Stream:
    """A job over documents in a folder, run night after night into `output`."""

    def __init__(self, folder: Path, model: str, *, output: str = "run", **knobs: Any) -> None:
        """Takes the folder, which several streams may share."""
        self.documents = folder / "documents.parquet"
        self.output = folder / output
        policy = {"chunk_tokens": 42, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}
        given: dict[str, Any] = {
            "documents": str(self.documents),
            "ask": QUESTIONS,
            "output": str(self.output),
            "engine": prompt_dependent_engine.KIND,
            "model": model,
            "window_tokens": 1500,
            "log": {"flush_seconds": 0.1},
        }
        self.knobs = given | knobs | {"policy": policy | knobs.get("policy", {})}
        """What a job file says."""
        self.job: JobConfig = job_of(**self.knobs, allow_code=True)

    def put(self, texts: Mapping[str, str]) -> None:
        """Makes these the documents."""
        rows = [{"document_id": name, "text": text} for name, text in texts.items()]
        pq.write_table(pa.Table.from_pylist(rows), self.documents)

    async def night(self, texts: Mapping[str, str]) -> Manifest:
        """One night over these texts, in this process."""
        self.put(texts)
        return await read_here(self.job)

    async def stopped_night(self, texts: Mapping[str, str], *, num_documents: int) -> None:
        """A night over these texts that meets a bound when it has read so many documents."""
        self.put(texts)
        with pytest.raises(BoundReachedError):
            await read_here(self.job, num_documents=num_documents)

    def manifest(self) -> Manifest:
        """Of the last finished run."""
        return require_manifest(Location(uri=str(self.output)))

    def table(self, manifest: Manifest, name: str) -> list[dict[str, Any]]:
        """A table of a run, without the columns that say who read when; in order of its values."""
        rows = pa.concat_tables([pq.read_table(self.output / file) for file in manifest["files"][name]]).to_pylist()
        return sorted(({key: row[key] for key in row if key not in OWN_COLUMNS} for row in rows), key=str)

    def tables(self, manifest: Manifest) -> dict[str, list[dict[str, Any]]]:
        """All tables of a run but `removed`."""
        return {name: self.table(manifest, name) for name in manifest["files"] if name != "removed"}

    def logged(self, *, run_id: str = "") -> list[dict[str, Any]]:
        """The rows of the turn log, of all runs or of one."""
        rows: list[dict[str, Any]] = pq.read_table(self.output / "log/turns").to_pylist()
        return [row for row in rows if run_id in ("", row["run_id"])]

    def asked(self, manifest: Manifest) -> Counter[str]:
        """Turn paths that a run asked the engine, and how often."""
        return Counter(row["path"] for row in self.logged(run_id=manifest["run_id"]) if row["held_from"] is None)


async def read_here(job: JobConfig, *, num_documents: int | None = None) -> Manifest:
    """The run of `answer` in this process, without Ray: the same plan, reader and tables.

    Raises:
        BoundReachedError: `num_documents` are read, and more are left.
    """
    checked, output = check(job), make_output(job)
    job = checked.job
    found = indexed(make_documents(job)[0], settings=job.input, found=checked.inputs.found)
    sample = sample_documents(found, limit=job.limit, seed=job.limit_seed)
    plan = Plan(
        sample.taken,
        checked.inputs.questions,
        samples=job.agent.sampling.samples,
        closing=checked.closing,
        outside=sample.outside,
    )
    run = begin_run(output, job, reader=checked.reader, plan=plan)
    before = keep_last_run(output)
    index = scan_plan(output, plan, reader_fingerprint=checked.reader.fingerprint)
    held_for = last_versions(output, before, plan, index=index, agent=job.agent)
    bundles = list(plan.pending(index, retry_failed=job.retry_failed, last_hashes=held_for))
    if bundles:
        write_begun_plan(output, recorded_plan(plan, index), run_id=run.run_id)
    task = ReaderTask.of_job(
        job,
        run_id=run.run_id,
        reader_fingerprint=checked.reader.fingerprint,
        board=SilentBoard(),
        closes=checked.closing is not None,
    )
    reader, splits = Reader(task), checked.closing is not None and checked.closing.config.evidence
    calls = [call for each in bundles for call in tokenise(each, agent=job.agent, sources=job, splits=splits)]
    not_read = collect_not_read(await asyncio.gather(*map(reader, calls[:num_documents])))
    if num_documents is not None and num_documents < len(calls):
        raise BoundReachedError(f"{num_documents} documents are read")
    log_files = set(list_log(output))
    index = scan_plan(output, plan, reader_fingerprint=checked.reader.fingerprint)
    kept = kept_parts(output)
    reports = [
        report
        for part in attach_not_read(plan_parts(plan, index), not_read)
        for report in write_tables(part, projection=run.projection, kept=kept).to_pylist()
    ]
    recorded = recorded_plan(plan, index)
    return close_run(
        run, reports=reports, recorded=recorded, log_files=log_files, before=before, run_turns=index.run_turns
    )
