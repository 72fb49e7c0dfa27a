"""Shows how far a run of `memagent convert` is: a line in a terminal, log lines elsewhere."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from tqdm import tqdm

from memagent_batch.convert.converter import PartStatus
from memagent_batch.convert.record import BatchReport
from memagent_batch.logs import EventKind
from memagent_batch.ray_data.progress.progress import LOG_SECONDS

FILES_BAR = "files {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"
"""The line of a terminal, in tqdm's words."""

log = logging.getLogger(__name__)


def shown(reports: Iterable[BatchReport], *, run_id: str, num_files: int) -> Iterator[BatchReport]:
    """The reports, each shown as it comes."""
    counts, last = Counter[str](), time.monotonic()
    with tqdm(total=num_files, bar_format=FILES_BAR, dynamic_ncols=True, disable=not sys.stderr.isatty()) as bar:
        for report in reports:
            counts.update(source.status for source in report.sources)
            counts.update(held=report.num_held)
            bar.update(len(report.sources))
            bar.set_postfix_str(_counts_text(counts))
            if bar.disable and time.monotonic() - last >= LOG_SECONDS:
                last = time.monotonic()
                done = sum(counts[status] for status in PartStatus)
                fields = {"event": EventKind.PROGRESS, "run_id": run_id, "files": done, "asked": num_files}
                log.info(f"files {done}/{num_files}, {_counts_text(counts)}", extra=fields)
            yield report


def _counts_text(counts: Counter[str]) -> str:
    return f"{counts['held']} held, {counts[PartStatus.FAILED]} failed, {counts[PartStatus.NEEDS_OCR]} need OCR"
