"""The record of an output of `memagent convert`: its claim at the start, and its manifest when all files have rows."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from tqdm import tqdm

from memagent_batch.convert.converter import PartStatus
from memagent_batch.convert.sources import ChosenConverter
from memagent_batch.convert.table import FILE_OUTCOMES, BatchReport, SourceReport
from memagent_batch.documents.listing import CONVERTED_FOLDER, CONVERTED_FORMAT, MANIFEST_FILE, RUN_FILE
from memagent_batch.domain.reasons import Reason, most_frequent, sum_up
from memagent_batch.errors import CountsError, NotReadError, OutputError, StorageError, TooManyFailedError
from memagent_batch.executors.progress.progress import LOG_SECONDS
from memagent_batch.logs import EventKind
from memagent_batch.runs.claim import TableSet, publish
from memagent_batch.runs.run import CLAIM_TRIES
from memagent_batch.store.claims import read_owner_record
from memagent_batch.store.errors import storage_errors
from memagent_batch.store.json_files import json_bytes, read_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.writer import new_run_id

CONVERTED_TABLES = TableSet(record=MANIFEST_FILE, folders=(CONVERTED_FOLDER,))
LISTED_REASONS = 5
"""Reasons of failed files that the manifest keeps."""
NAMED_FILES = 20
"""Files without rows, or left out, that an error or a manifest names."""
FILES_BAR = "files {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"
"""The line of a terminal, in tqdm's words."""

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
    """Name and version of the converter of each kind."""
    counts: Mapping[str, int]
    """Files by how they ended and by whether they were converted now, their documents, and rows by status."""
    reasons: list[Mapping[str, Any]]
    """The most frequent ones of files that are not `ok`."""
    left_out: list[str]
    """The first hidden files and folders, which have no rows; `counts` has their number."""
    files: Mapping[str, list[str]]
    """Files of the table, below the output."""


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
    started_at, place = datetime.now(UTC), output / RUN_FILE
    for _ in range(CLAIM_TRIES):
        with storage_errors(place.uri):
            version, before = place.version(), read_json(place)
        run_id = new_run_id(after=before["run_id"] if before else "")
        record = {"format": CONVERTED_FORMAT, "run_id": run_id, "started_at": started_at.isoformat()}
        if place.replace(json_bytes({**record, "documents": [*documents]}), version=version):
            break
    else:
        raise StorageError(f"{place.uri} changes whenever it is looked at; see how many attempts are started")
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
    reports: Sequence[BatchReport],
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
    sources = [source for report in reports for source in report.sources]
    _require_rows_for_all([source.source for source in sources], names)
    manifest: ConvertManifest = {
        "format": CONVERTED_FORMAT,
        "run_id": run.run_id,
        "started_at": run.started_at.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
        "documents": [*run.documents],
        "converters": {kind: f"{chosen.name} {chosen.version}" for kind, chosen in converters.items()},
        "counts": {
            **_convert_counts(sources, num_reused=sum(report.num_reused for report in reports)),
            "left_out": len(left_out),
        },
        "reasons": [
            {"status": status, "reason": reason.error_message, "files": reason.num_readings}
            for status in FILE_OUTCOMES[:-1]
            for reason in _reasons(sources, status)
        ],
        "left_out": [*left_out[:NAMED_FILES]],
        "files": {CONVERTED_FOLDER: [report.file for report in reports]},
    }
    publish(run.output, manifest, tables=CONVERTED_TABLES, run_id=run.run_id)
    return manifest


def require_converted(manifest: ConvertManifest, *, max_failed_share: float) -> None:
    """Returns where enough was converted and nothing is left to read.

    Raises:
        TooManyFailedError: more files failed than `max_failed_share` allows, or all.
        NotReadError: some files could not be read now.
    """
    counts = manifest["counts"]
    files, failed = counts["files"], counts["files_failed"]
    if failed > max_failed_share * files or failed == files > 0:
        raise TooManyFailedError(
            f"{failed} of {files} files failed ({_reasons_text(manifest, PartStatus.FAILED)}); their rows are in "
            f"`{CONVERTED_FOLDER}`: fix the cause, and run the same command with --retry-failed"
        )
    if not_read := counts["files_not_read"]:
        reasons = _reasons_text(manifest, PartStatus.NOT_READ)
        raise NotReadError(f"{not_read} of {files} files were not read ({reasons}); the same command reads them")


def _require_rows_for_all(found: Sequence[str], asked: Sequence[str]) -> None:
    missing, doubled = set(asked) - set(found), [name for name, times in Counter(found).items() if times > 1]
    if missing or doubled or len(found) != len(asked):
        raise CountsError(
            f"{len(asked)} files were found, and {len(found)} have rows; without: "
            f"{', '.join(sorted(missing)[:NAMED_FILES]) or 'none'}; "
            f"twice: {', '.join(doubled[:NAMED_FILES]) or 'none'}"
        )


def _convert_counts(sources: Sequence[SourceReport], *, num_reused: int) -> dict[str, int]:
    files = Counter(source.status for source in sources)
    parts = Counter[str]()
    for source in sources:
        parts.update(source.parts)
    return {
        "files": len(sources),
        "files_reused": num_reused,
        "files_converted": len(sources) - num_reused,
        **{f"files_{status}": files[status] for status in PartStatus},
        "documents": sum(source.documents for source in sources),
        "rows": sum(parts.values()),
        **{f"rows_{status}": parts[status] for status in PartStatus},
    }


def _reasons(sources: Sequence[SourceReport], status: PartStatus) -> list[Reason]:
    own = (source for source in sources if source.status == status)
    reasons = [Reason(error_type=status.value, error_message=source.reason or status.value) for source in own]
    return most_frequent(reasons, limit=LISTED_REASONS)


def _reasons_text(manifest: ConvertManifest, status: PartStatus) -> str:
    return sum_up(
        Reason(error_type=status, error_message=reason["reason"], num_readings=reason["files"])
        for reason in manifest["reasons"]
        if reason["status"] == status
    )


def shown(reports: Iterable[BatchReport], *, run_id: str, num_files: int) -> Iterator[BatchReport]:
    """The reports, each shown as it comes."""
    counts, last = Counter[str](), time.monotonic()
    with tqdm(total=num_files, bar_format=FILES_BAR, dynamic_ncols=True, disable=not sys.stderr.isatty()) as bar:
        for report in reports:
            counts.update(source.status for source in report.sources)
            counts.update(reused=report.num_reused)
            bar.update(len(report.sources))
            bar.set_postfix_str(_counts_text(counts))
            if bar.disable and time.monotonic() - last >= LOG_SECONDS:
                last = time.monotonic()
                done = sum(counts[status] for status in PartStatus)
                fields = {"event": EventKind.PROGRESS, "run_id": run_id, "files": done, "asked": num_files}
                log.info(f"files {done}/{num_files}, {_counts_text(counts)}", extra=fields)
            yield report


def _counts_text(counts: Counter[str]) -> str:
    return f"{counts['reused']} reused, {counts[PartStatus.FAILED]} failed, {counts[PartStatus.NEEDS_OCR]} need OCR"
