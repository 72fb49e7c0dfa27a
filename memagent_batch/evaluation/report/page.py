"""The report as one HTML page that needs nothing beside it: values in, bytes out.

All that comes from a document, a question or a model is text: Jinja escapes every value, characters that can't be seen
are replaced by a sign, and the page forbids itself scripts and anything from outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import jinja2
import pyarrow as pa

from memagent_batch.domain.scores import ScoreOn
from memagent_batch.evaluation.measures import Comparison, Measures
from memagent_batch.evaluation.record import VariantRecord
from memagent_batch.evaluation.report.charts import Chart, colour_of, render_chart, short_name
from memagent_batch.evaluation.report.curves import num_tokens
from memagent_batch.evaluation.report.depths import PlaceMap
from memagent_batch.evaluation.report.failures import TRACES_PER_VARIANT, Failures, Fault
from memagent_batch.evaluation.report.lengths import length_label, magnitude
from memagent_batch.evaluation.report.templates import MAX_TEXT_CHARACTERS, page_environment
from memagent_batch.evaluation.report.traces import MAX_MEMORY_CHARACTERS, MAX_STEPS, Trace
from memagent_batch.evaluation.scoring import ALL_TASKS, CellSummary
from memagent_batch.log.index import Row

MAX_REFERENCES = 20
"""Of a question, references that are shown."""


SCORED_ON = {
    ScoreOn.METRIC: "the whole response by RULER's metrics, the extracted answer by the others",
    ScoreOn.RESPONSE: "the whole response",
    ScoreOn.ANSWER: "the extracted answer",
}
"""What is scored, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """One failure on the page."""

    anchor: str
    """Its id on the page."""
    row: Row
    """Its row of `SCORES`."""
    fault: Fault
    """What is wrong."""
    answer: Row | None
    """Its row of `answers`; None where the run has none."""
    trace: Trace
    """Turn by turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantView:
    """One variant on the page."""

    record: VariantRecord
    """Who read."""
    total: CellSummary
    """All its readings."""
    failures: Failures
    """Which of its readings are shown as failures."""
    shown: Sequence[FailureView]
    """These, with their traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the page shows."""

    suite: str
    """Place of the suite."""
    num_questions: int
    """Questions of the suite."""
    read_at: datetime
    """When the last variant had been read, UTC."""
    drawn_at: datetime
    """When the report was drawn, UTC."""
    scores: pa.Table
    """A table of `SCORES`, all variants, each reading with a length where one is known."""
    cells: Sequence[CellSummary]
    """Each task at each length, by variant."""
    all_tasks: Sequence[CellSummary]
    """All tasks together at each length, by variant."""
    comparisons: Sequence[Comparison]
    """Each further variant against the first."""
    measures: Sequence[Measures]
    """What values, evidence and `not stated` come to: all tasks together, then each task, by variant."""
    depths: Sequence[PlaceMap]
    """Mean score by depth of the needle, for tasks with a single one."""
    spreads: Sequence[PlaceMap]
    """Mean score by distance between the first and the last fact, for tasks with several."""
    variants: Sequence[VariantView]
    """In their order."""


def render_report(page: Page, *, charts: Sequence[Chart]) -> bytes:
    """The page, UTF-8; sections of charts that are not there are left out."""
    environment = page_environment(jinja2.PackageLoader("memagent_batch.evaluation", "report"))
    environment.filters |= {
        "length": length_label,
        "magnitude": magnitude,
        "num_tokens": num_tokens,
        "chance": chance_label,
        "score": score_label,
        "short": short_name,
    }
    names = [view.record.name for view in page.variants]
    text = environment.get_template("page.html").render(
        page=page,
        charts={chart.name: render_chart(chart) for chart in charts},
        names=names,
        scored_on={view.record.name: SCORED_ON[ScoreOn(view.record.score_on)] for view in page.variants},
        colours={name: colour_of(place) for place, name in enumerate(names)},
        measures=_by_task(page.measures),
        groups=_cells_by_task([*page.all_tasks, *page.cells], names=names),
        caps={
            "traces": TRACES_PER_VARIANT,
            "steps": MAX_STEPS,
            "memory": MAX_MEMORY_CHARACTERS,
            "text": MAX_TEXT_CHARACTERS,
            "references": MAX_REFERENCES,
        },
    )
    return text.encode("utf-8", errors="backslashreplace")


def score_label(score: float) -> str:
    """Three digits; 1.000 and 0.000 only where nothing or everything is wrong."""
    if 0 < score < 1:
        score = min(max(score, 0.001), 0.999)
    return f"{score:.3f}"


def chance_label(chance: float) -> str:
    """Three digits, `< 0.001` below these."""
    return "< 0.001" if chance < 0.001 else f"{chance:.3f}"


def _cells_by_task(cells: Sequence[CellSummary], *, names: Sequence[str]) -> dict[str, list[CellSummary]]:
    """Cells by task, all tasks together first; in each the variants beside each other at each length."""
    groups: dict[str, list[CellSummary]] = {}
    for cell in cells:
        groups.setdefault(cell.task, []).append(cell)
    for group in groups.values():
        group.sort(key=lambda cell: (cell.length_tokens is None, cell.length_tokens or 0, names.index(cell.variant)))
    return groups


def _by_task(measures: Sequence[Measures]) -> dict[str, list[Measures]]:
    """Measures by task, all tasks together first."""
    groups: dict[str, list[Measures]] = {}
    for each in measures:
        groups.setdefault(each.task, []).append(each)
    return dict(sorted(groups.items(), key=lambda group: (group[0] != ALL_TASKS, group[0])))
