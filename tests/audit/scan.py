"""A small scan of three nights with all tables, made once, and checks of its copies."""

import json
import shutil
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.job import JobConfig
from memagent_batch.flows.audit import RereadSample, Verification, verify
from memagent_batch.runs.record import list_log, parse_sums, sums_bytes
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location
from tests.flows.grown import Stream, text_of

ASK = [
    {"question_id": "who", "question": "Who?"},
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
    {"question_id": "often", "question": "How often?", "answer_type": "number", "unit": "EUR"},
]
NIGHTS: tuple[dict[str, Any], ...] = (
    {"a": text_of("Ann", days=4), "b": text_of("Bob", days=2), "none": None},
    {"a": text_of("Ann", days=5), "b": text_of("Bob", days=2), "c": "A cat.", "none": None},
    {"a": text_of("Ann", days=5), "c": "A cat.", "d": text_of("Dan", days=3), "none": None},
)


def make_scan(folder: Path, model: str) -> Stream:
    """Three nights: a document grows, one is gone, one can't be read."""
    stream = Stream(folder, model, ask=ASK, follow_ups={"evidence": True, "support": True})
    for texts in NIGHTS:
        stream.night(texts)
    return stream


class Copy:
    """A copy of the scan's output, to be damaged."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        shutil.copytree(stream.output, folder)
        self.folder, self.stream = folder, stream
        self.job: JobConfig | None = stream.job

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "manifest.json").read_text()))

    @property
    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "runs").iterdir())

    def files(self) -> list[str]:
        """All files below the output that a run names."""
        names = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
        return sorted(name for name in names if ".tmp" not in name)

    def verify(self, **settings: Any) -> Verification:
        return verify_here(Location(uri=str(self.folder)), job=self.job, **settings)

    def rewrite(
        self, change: Callable[[dict[str, Any]], None] = lambda manifest: None, *, run_id: str = "", seals: bool = True
    ) -> None:
        """Changes the manifest of a run, the last one's where it is shown too; `seals` makes the lists fit again."""
        run_id = run_id or self.runs[-1]
        place = self.folder / "runs" / run_id / "manifest.json"
        manifest = json.loads(place.read_text())
        change(manifest)
        place.write_bytes(json_bytes(manifest))
        if run_id == self.runs[-1]:
            (self.folder / "manifest.json").write_bytes(json_bytes(manifest))
        if seals:
            self.reseal(run_id)

    def sums(self, run_id: str = "") -> dict[str, str]:
        """The list of a run, by default of the last one."""
        place = self.folder / "runs" / (run_id or self.runs[-1]) / "SHA256SUMS"
        return parse_sums(place.read_bytes(), name=place.name)

    def reseal(self, run_id: str = "", *, without: Collection[str] = (), more: Collection[str] = ()) -> None:
        """Makes the list of a run fit the files as they are now, with some left out and some more."""
        names = {*self.sums(run_id), *more} - {*without}
        hashes = {
            name: sha256((self.folder / name).read_bytes()).hexdigest()
            for name in names
            if (self.folder / name).exists()
        }
        place = self.folder / "runs" / (run_id or self.runs[-1]) / "SHA256SUMS"
        place.write_bytes(sums_bytes(hashes))

    def strip(self, run_id: str) -> None:
        (self.folder / "runs" / run_id / "SHA256SUMS").unlink()

    def forge_answer(self) -> str:
        """Changes an answer of the last run; returns the file."""
        name: str = self.manifest["files"]["answers"][0]
        table = pq.read_table(self.folder / name)
        answers = table["answer"].to_pylist()
        answers[table["status"].to_pylist().index("ok")] = "another"
        column = table.schema.get_field_index("answer")
        changed = table.set_column(column, table.schema.field(column), pa.array(answers, pa.string()))
        pq.write_table(changed, self.folder / name)
        return name

    def seal_log(self) -> None:
        """Has the last run list the log as it is now."""
        self.reseal(more=[*list_log(Location(uri=str(self.folder)))])


def verify_here(output: Location, *, job: JobConfig | None = None, **settings: Any) -> Verification:
    """Checks an output; asks no engine where `reread` is not given."""
    num, seed = settings.pop("reread", 0), settings.pop("seed", 0)
    drawn = RereadSample(num=num, seed=seed, job=job) if num and job else None
    return verify(output, drawn=drawn, **settings)


def found(result: Verification) -> set[tuple[str, str]]:
    """Kind and place of all that is wrong."""
    return {(each.kind.value, each.where) for each in result.findings}
