"""Documents that grow from night to night, read by an engine whose every word depends on its whole prompt."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import NotReadError
from memagent_batch.run.executors.executor import Tokenise
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.executors.reader import Reader, ReaderTask
from memagent_batch.run.flows.answer import answer, answer_checked
from memagent_batch.run.flows.check import check
from memagent_batch.run.history import require_manifest
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.tables import READING_TABLES
from tests import prompt_dependent_engine
from tests.jobs import put_documents, small_settings
from tests.tables import OWN_COLUMNS, rows_in, table_rows

QUESTIONS = ("Who?", "Where?")
LINE = "On day {day} of {name} the fox went over {day} hills and met {name} again, and nobody else was there.\n"


def text_of(name: str, *, days: int) -> str:
    """A diary of so many days; each takes a little more than a chunk."""
    return "".join(LINE.format(day=day, name=name) for day in range(days))


class Stream:
    """A job over documents in a folder, run night after night into `output`."""

    def __init__(self, folder: Path, model: str, *, output: str = "run", **settings: Any) -> None:
        self.documents = folder / "documents.parquet"
        self.output = folder / output
        own: dict[str, Any] = {
            "documents": str(self.documents),
            "ask": QUESTIONS,
            "output": str(self.output),
            "engine": prompt_dependent_engine.KIND,
            "window_tokens": 1500,
        }
        policy = {"chunk_tokens": 42, "break_at": "length", **settings.get("policy", {})}
        self.settings = small_settings(folder, model, **own | settings | {"policy": policy})
        self.job: JobConfig = job_of(**self.settings, allow_code=True)

    def put(self, texts: Mapping[str, str]) -> None:
        put_documents(self.documents.parent, texts)

    def night(self, texts: Mapping[str, str]) -> Manifest:
        self.put(texts)
        return answer(self.job)

    def stopped_night(self, texts: Mapping[str, str], *, num_documents: int) -> None:
        """A night over these texts that stops when it has read so many documents."""
        self.put(texts)
        with pytest.raises(NotReadError):
            answer_checked(replace(check(self.job), executor=StoppedExecutor(num_documents)))

    def manifest(self) -> Manifest:
        return require_manifest(Location(uri=str(self.output)))

    def table(self, manifest: Manifest, name: str) -> list[dict[str, Any]]:
        """A table of a run, without the columns that say who read when; in order of its values."""
        rows = table_rows(self.output, name, run_id=manifest["run_id"])
        return sorted(({key: row[key] for key in row if key not in OWN_COLUMNS} for row in rows), key=str)

    def tables(self, manifest: Manifest) -> dict[str, list[dict[str, Any]]]:
        """All tables of readings of a run."""
        return {name: self.table(manifest, name) for name in READING_TABLES if name in manifest["table_versions"]}

    def logged(self, *, run_id: str = "") -> list[dict[str, Any]]:
        """The rows of the turn log, of all runs or of one."""
        return [row for row in rows_in(self.output / "log/turns") if run_id in ("", row["run_id"])]

    def asked(self, manifest: Manifest) -> Counter[str]:
        """Turn paths that a run asked the engine, and how often."""
        return Counter(row["path"] for row in self.logged(run_id=manifest["run_id"]) if not row["is_copy"])


class StoppedExecutor(LocalExecutor):
    """Reads so many documents of a run; then the run stops."""

    def __init__(self, num_documents: int) -> None:
        self._num_documents = num_documents

    @contextmanager
    def read(
        self, batches: Iterable[pa.Table], *, tokenise: Tokenise, reader: type[Reader], task: ReaderTask
    ) -> Iterator[Iterator[pa.Table]]:
        first = pa.concat_tables(batches).slice(0, self._num_documents)
        with super().read([first], tokenise=tokenise, reader=reader, task=task) as rows:
            yield rows
        raise NotReadError(f"{self._num_documents} documents are read")
