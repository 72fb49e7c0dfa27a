"""`memagent diff`: the answers in which two finished runs differ, with both memories. Reads records and logs."""

import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.cli.screen import cut
from memagent_batch.errors import SettingsError
from memagent_batch.files.location import Location
from memagent_batch.files.options import StorageOptions
from memagent_batch.pages.values import values_of_both
from memagent_batch.runs.history.causes import AnswerChange
from memagent_batch.runs.history.comparison import compare_runs
from memagent_batch.runs.history.history import LATEST, PREVIOUS, PastRun, find_run
from memagent_batch.runs.history.schemas import DIFFERENCES, DifferenceRow

MANUAL = Manual(
    command="memagent diff",
    about="Shows the answers in which two finished runs differ: rows whose answer, value, status or presence\n"
    "differs, why, and both memories. A question is the same by its question_id, a document by its document_id.",
    examples=(
        "memagent diff --output out/",
        "memagent diff out-before/ out-after/ --to changes.parquet",
    ),
)

WIDTHS = {"document": 28, "question": 16, "why": 30, "before": 32, "after": 32}
"""Characters of each column on the screen."""
TEXT_WIDTH = 120
"""Characters of a question or memory on the screen; --json and --to have all of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what differs; returns the exit code."""
    return run_command(partial(_diff, sys.argv[1:] if arguments is None else arguments))


def _diff(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("before", nargs="?", default=PREVIOUS, help="RUN_ID, latest, previous, or an output (a path)")
    parser.add_argument("after", nargs="?", default=LATEST, help="the same; an output stands for its latest run")
    parser.add_argument("--output", help="where the runs wrote: a folder or any fsspec URL")
    parser.add_argument("--document", metavar="ID", help="only readings of this document_id")
    parser.add_argument("--question", metavar="ID", help="only readings of this question_id")
    parser.add_argument("--json", action="store_true", help="print each row as a JSON object on a line of its own")
    parser.add_argument("--to", metavar="FILE.parquet", help="write the rows to this file and print only how many")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    if options.to and not options.to.endswith(".parquet"):
        raise SettingsError(f"--to: {options.to} does not end in .parquet, the one format that is written; rename it")
    storage_options = options.storage_options
    before, after = (
        _past_run(name, output=options.output, storage_options=storage_options)
        for name in (options.before, options.after)
    )
    counts: Counter[str] = Counter()
    wanted = {"document_id": options.document, "question_id": options.question}
    tables = _with_counts(_only(compare_runs(before, after), wanted), counts)
    if options.to:
        Location(uri=options.to, storage_options=storage_options).write_bytes(_parquet(tables))
    elif options.json:
        _print_json(tables)
        return
    else:
        _print_table(tables)
    summary = _change_summary(before, after, counts)
    print(json.dumps(summary) if options.json else _summary_sentence(summary))


def _past_run(name: str, *, output: str | None, storage_options: StorageOptions) -> PastRun:
    """The run that an argument names."""
    if output is None and name in {LATEST, PREVIOUS}:
        raise SettingsError("--output: missing; say where the runs wrote, or give two outputs")
    if output is None or "/" in name:
        return find_run(Location(uri=name, storage_options=storage_options), LATEST)
    return find_run(Location(uri=output, storage_options=storage_options), name)


def _only(tables: Iterable[pa.Table], wanted: Mapping[str, str | None]) -> Iterator[pa.Table]:
    """The rows with these values, where one is given."""
    for table in tables:
        for name, value in wanted.items():
            if value is not None:
                table = table.filter(pc.equal(table[name], value))
        yield table


def _with_counts(tables: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
    for table in tables:
        counts.update(table["change"].to_pylist())
        yield table


def _parquet(tables: Iterable[pa.Table]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, DIFFERENCES, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


def _print_json(tables: Iterable[pa.Table]) -> None:
    for table in tables:
        for row in table.to_pylist():
            print(json.dumps(row, ensure_ascii=False))


def _print_table(tables: Iterable[pa.Table]) -> None:
    print(_cells_line({name: name for name in WIDTHS}))
    for table in tables:
        for row in table.to_pylist():
            print("\n".join(_row_lines(row)))


def _row_lines(row: DifferenceRow) -> Iterator[str]:
    """A row of `DIFFERENCES` for the screen: one line of cells, and its texts below."""
    yield _cells_line(
        {
            "document": row["document_id"],
            "question": f"{row['question_id']} #{row['sample']}" if row["sample"] else row["question_id"],
            "why": f"{row['change']}: {', '.join(row['why'])}",
            "before": _answer_of(row["status_before"], row["answer_before"], error=row["error_message_before"]),
            "after": _answer_of(row["status_after"], row["answer_after"], error=row["error_message_after"]),
        }
    )
    texts = {"memory before": row["memory_before"], "memory after": row["memory_after"]}
    if row["question_before"] != row["question_after"]:
        texts = {"question before": row["question_before"], "question after": row["question_after"], **texts}
    for name, text in (_other_values(row) | texts).items():
        if text:
            yield f"    {name}: {cut(text, TEXT_WIDTH)}"


def _other_values(row: DifferenceRow) -> dict[str, str]:
    """The values of both runs, where they differ."""
    values = values_of_both(row)
    if values is None:
        return {}
    before, after = values
    return {"value before": before or "(none)", "value after": after or "(none)"}


def _cells_line(cells: dict[str, str]) -> str:
    return " ".join(f"{cut(cells[name], width):<{width}}" for name, width in WIDTHS.items()).rstrip()


def _answer_of(status: str | None, answer: str | None, *, error: str | None) -> str:
    """The answer of one run in a few words."""
    if status is None:
        return "(not asked)"
    if status == "not_read":
        return "(not read)"
    if answer is None:
        return f"({status}, no answer)" if error is None else f"({error})"
    return answer


def _change_summary(before: PastRun, after: PastRun, counts: Counter[str]) -> dict[str, str | int]:
    return {
        "before": before.run_id,
        "after": after.run_id,
        "asked_before": before.manifest["counts"]["asked"],
        "asked_after": after.manifest["counts"]["asked"],
        **{change.value: counts[change] for change in AnswerChange},
    }


def _summary_sentence(summary: dict[str, str | int]) -> str:
    return (
        f"{summary['before']} -> {summary['after']}: {summary['changed']} changed, {summary['added']} added, "
        f"{summary['removed']} removed, of {summary['asked_before']} -> {summary['asked_after']} readings"
    )


if __name__ == "__main__":
    sys.exit(main())
