"""The record of an output of `memagent convert`: its claim at the start, and its manifest when all files have rows."""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

import pyarrow as pa

from memagent_batch.convert.converter import PartStatus
from memagent_batch.convert.publish import TableSet, publish
from memagent_batch.convert.sources import ChosenConverter
from memagent_batch.documents.listing import CONVERTED_FOLDER, CONVERTED_FORMAT, MANIFEST_FILE, RUN_FILE
from memagent_batch.domain.reasons import Reason, most_frequent, sum_up
from memagent_batch.errors import CountsError, NotReadError, OutputError, TooManyFailedError
from memagent_batch.executors.progress.progress import LOG_SECONDS
from memagent_batch.logs import EventKind
from memagent_batch.store.claims import claim_folder, read_owner_record
from memagent_batch.store.database import run_query
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location

CONVERTED_TABLES = TableSet(record=MANIFEST_FILE, folders=(CONVERTED_FOLDER,))
LISTED_REASONS = 5
COUNTS_SQL = f"""
    select
        count(*) as files,
        count(*) filter (is_reused) as files_reused, count(*) filter (not is_reused) as files_converted,
        {", ".join(f"count(*) filter (status = '{status}') as files_{status}" for status in PartStatus)},
        sum(documents)::bigint as documents, sum(rows)::bigint as rows,
        {", ".join(f"sum(rows_{status})::bigint as rows_{status}" for status in PartStatus)}
    from sources
"""
NAMED_FILES = 20
"""Files without rows, or left out, that an error or a manifest names."""

log = logging.getLogger(__name__)


class ConvertManifest(TypedDict):
    """What `manifest.json` says."""

    format: str
    run_id: str
    started_at: str
    finished_at: str
    seconds: float
    documents: list[str]
    converters: Mapping[str, str]
    counts: Mapping[str, int]
    """Files by how they ended and by whether they were converted now, their documents, and rows by status."""
    left_out: list[str]
    """The first hidden files and folders, which have no rows; `counts` has their number."""
    files: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRun:
    """One run of `memagent convert`."""

    run_id: str
    output: Location
    documents: tuple[str, ...]
    """Where the files are, without secrets."""
    finished: tuple[str, ...]
    """Files of the table that the last finished run left."""
    started_at: datetime
    began_seconds: float
    """When it began on the monotonic clock, seconds."""


def require_output(output: Location, *, documents: Sequence[str]) -> None:
    """Checks that the table may be written here: an empty place, or one that the same input was converted to.

    Raises:
        OutputError: the place holds something else; says what, and what to do.
    """
    record = read_owner_record(output, RUN_FILE, layout=CONVERTED_FORMAT)
    if record is not None and record["documents"] != [*documents]:
        raise OutputError(
            f"output: {output} holds what {', '.join(record['documents'])} was converted to; choose another output for "
            f"{', '.join(documents)}"
        )


def begin_convert(output: Location, *, documents: Sequence[str]) -> ConvertRun:
    """Writes `run.json`: from here on the output belongs to this run."""
    started_at = datetime.now(UTC)
    record = {"format": CONVERTED_FORMAT, "run_id": "", "started_at": started_at.isoformat()}
    run_id = claim_folder(output / RUN_FILE, {**record, "documents": [*documents]})
    manifest = read_json(output / MANIFEST_FILE)
    return ConvertRun(
        run_id=run_id,
        output=output,
        documents=tuple(documents),
        finished=tuple(manifest["files"][CONVERTED_FOLDER]) if manifest else (),
        started_at=started_at,
        began_seconds=time.monotonic(),
    )


def close_convert(
    run: ConvertRun,
    sources: pa.Table,
    *,
    names: Sequence[str],
    left_out: Sequence[str] = (),
    converters: Mapping[str, ChosenConverter],
) -> ConvertManifest:
    """Checks that every file has its rows, and shows the table in place of the one before.

    Raises:
        CountsError: a file has no rows, or is there twice.
        SupersededError: a newer attempt has claimed the output.
    """
    _require_rows_for_all(sources["source"].to_pylist(), names)
    manifest: ConvertManifest = {
        "format": CONVERTED_FORMAT,
        "run_id": run.run_id,
        "started_at": run.started_at.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
        "documents": [*run.documents],
        "converters": {kind: f"{chosen.name} {chosen.version}" for kind, chosen in converters.items()},
        "counts": {
            **run_query(COUNTS_SQL, {"sources": sources}).to_pylist()[0],
            "left_out": len(left_out),
        },
        "left_out": [*left_out[:NAMED_FILES]],
        "files": {CONVERTED_FOLDER: sorted(set(sources["file"].to_pylist()))},
    }
    publish(run.output, manifest, tables=CONVERTED_TABLES, run_id=run.run_id)
    return manifest


def require_converted(manifest: ConvertManifest, sources: pa.Table, *, max_failed_share: float) -> None:
    """Returns where enough was converted and nothing is left to read.

    Raises:
        TooManyFailedError: more files failed than `max_failed_share` allows, or all.
        NotReadError: some files could not be read now.
    """
    counts = manifest["counts"]
    files, failed = counts["files"], counts["files_failed"]
    if failed > max_failed_share * files or failed == files > 0:
        raise TooManyFailedError(
            f"{failed} of {files} files failed ({_reasons_text(sources, PartStatus.FAILED)}); their rows are in "
            f"`{CONVERTED_FOLDER}`: fix the cause, and run it again with retry_failed"
        )
    if not_read := counts["files_not_read"]:
        reasons = _reasons_text(sources, PartStatus.NOT_READ)
        raise NotReadError(f"{not_read} of {files} files were not read ({reasons}); the same command reads them")


def _require_rows_for_all(found: Sequence[str], asked: Sequence[str]) -> None:
    missing, doubled = set(asked) - set(found), [name for name, times in Counter(found).items() if times > 1]
    if missing or doubled or len(found) != len(asked):
        raise CountsError(
            f"{len(asked)} files were found, and {len(found)} have rows; without: "
            f"{', '.join(sorted(missing)[:NAMED_FILES]) or 'none'}; "
            f"twice: {', '.join(doubled[:NAMED_FILES]) or 'none'}"
        )


def _reasons_text(sources: pa.Table, status: PartStatus) -> str:
    own = (row for row in sources.select(["status", "reason"]).to_pylist() if row["status"] == status)
    reasons = (Reason(error_type=status.value, error_message=row["reason"] or status.value) for row in own)
    return sum_up(most_frequent(reasons, limit=LISTED_REASONS))


def shown(reports: Iterable[pa.Table], *, run_id: str, num_files: int) -> Iterator[pa.Table]:
    """The reports of tasks; a line says now and then how far they are."""
    counts, last = Counter[str](), time.monotonic()
    for report in reports:
        counts.update(report["status"].to_pylist())
        counts.update(reused=sum(report["is_reused"].to_pylist()))
        if time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            done = sum(counts[status] for status in PartStatus)
            fields = {"event": EventKind.PROGRESS, "run_id": run_id, "files": done, "asked": num_files}
            log.info(
                f"files {done}/{num_files}, {counts['reused']} reused, {counts[PartStatus.FAILED]} failed, "
                f"{counts[PartStatus.NEEDS_OCR]} need OCR",
                extra=fields,
            )
        yield report
