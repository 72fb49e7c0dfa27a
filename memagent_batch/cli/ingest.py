"""`memagent ingest`: files and tables to the documents of an output."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import JsonCommand, StorageCommand, require_converters
from memagent_batch.config.job import IngestJob
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url

if TYPE_CHECKING:
    from memagent_batch.run.flows.ingest import IngestReport


class Ingest(StorageCommand, JsonCommand, IngestJob):
    """Reads document files (PDF, HTML, Office, e-mail, RTF, text, ZIP), data files (Parquet, JSONL, CSV) and lake
    tables into the tables `documents` and `sources` of an output. Later runs open only new and changed sources.
    `answer` and `scan` include this step.
    """

    command = "memagent ingest"
    examples = (
        "memagent ingest --documents contracts/ --output texts/ --ingest.ocr",
        "memagent ingest --documents s3://bucket/mail/ 's3://bucket/pdf/**/*.pdf' --output s3://bucket/texts/ "
        "--ingest.seconds 120",
    )
    pages = ("docs/how-to/ingest.md",)

    allow_code: bool = False
    """Allow `ingest.converter` to run your code (package.module:Class)."""

    def run(self) -> None:
        from memagent_batch.run.flows.ingest import ingest_documents  # here, so that --help loads no reader

        require_converters(self.ingest, allows_code=self.allow_code)
        report, output = ingest_documents(self), mask_url(self.output)
        self.report(
            {"output": output, **report["counts"]}, report_lines(report, output=shlex.quote(output)), indent=None
        )


def report_lines(report: "IngestReport", *, output: str) -> Iterator[str]:
    """What a person reads of an ingest."""
    counts = report["counts"]
    yield (
        f"{quantity(counts['sources'], 'source')}, {counts['sources_read']:,} of them read now: "
        f"{quantity(counts['documents'], 'document')} in {output}, {report['seconds']:,.0f} s"
    )
    changes = {name: counts[f"documents_{name}"] for name in ("added", "changed", "removed")}
    yield ", ".join(f"{num:,} {name}" for name, num in changes.items()) + " documents"
    kinds = {name.removeprefix("sources_"): num for name, num in counts.items() if name.startswith("sources_")}
    unread = ", ".join(
        f"{num:,} {name.replace('_', ' ')}" for name, num in kinds.items() if name not in ("read", "gone")
    )
    if unread:
        yield f"sources with something that is not in the text, or may be wrong: {unread}"
    yield ""
    yield f'next: memagent answer --config reader --documents {output} --output out/ --ask "What is it about?"'
    yield "      (needs once: memagent models install reader-135m; for larger models: memagent doctor)"
