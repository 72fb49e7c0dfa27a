"""From an evaluation's output to a page: read, pick the failures and trace them, summarise, draw, write."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.scores import Metric
from memagent_batch.evaluation.measures import compare, measure
from memagent_batch.evaluation.record import ReadingRows, VariantRecord, open_evaluation, read_readings, read_scores
from memagent_batch.evaluation.report.charts import Chart
from memagent_batch.evaluation.report.curves import chart_accuracy, chart_costs, chart_reliability, chart_tasks
from memagent_batch.evaluation.report.depths import map_places
from memagent_batch.evaluation.report.failures import choose_failures, fault_of, reading_ids
from memagent_batch.evaluation.report.lengths import with_lengths
from memagent_batch.evaluation.report.page import FailureView, Page, VariantView, render_report
from memagent_batch.evaluation.report.traces import make_trace
from memagent_batch.evaluation.scoring import CellSummary, Grouping, summarise
from memagent_batch.files.location import Location
from memagent_batch.log.index import Row

REPORT_FOLDER = "report"
"""Where the report goes below the evaluation's output, by default."""
PAGE_FILE = "report.html"


class WrittenReport(TypedDict):
    """Where a report is, and what it shows."""

    page: str
    questions: int
    readings: int
    failures: int
    traces: int


def write_report(output: Location, *, target: Location) -> WrittenReport:
    """Writes `report.html`; returns where it is and what it shows.

    Raises:
        OutputError: the output is no evaluation, or a variant's scores are missing.
        StorageError: the target can't be written.
    """
    page = make_page(output)
    (target / PAGE_FILE).write_bytes(render_report(page, charts=make_charts(page)))
    return WrittenReport(
        page=str(target / PAGE_FILE),
        questions=page.num_questions,
        readings=page.scores.num_rows,
        failures=sum(view.failures.total for view in page.variants),
        traces=sum(len(view.shown) for view in page.variants),
    )


def make_page(output: Location) -> Page:
    """All that the page shows but its charts.

    Raises:
        OutputError: the output is no evaluation, or a table of it is missing or broken.
    """
    evaluation = open_evaluation(output)
    scores = with_lengths(read_scores(output, evaluation))
    names = [record.name for record in evaluation.variants]
    totals = {cell.variant: cell for cell in summarise(scores, grouping=Grouping.VARIANT)}
    return Page(
        suite=evaluation.suite,
        num_questions=len(set(zip(scores["document_id"].to_pylist(), scores["question_id"].to_pylist(), strict=True))),
        read_at=max(datetime.fromisoformat(variant.finished_at) for variant in evaluation.variants),
        drawn_at=datetime.now(UTC),
        scores=scores,
        cells=summarise(scores),
        all_tasks=summarise(scores, grouping=Grouping.LENGTH),
        comparisons=compare(scores),
        measures=measure(scores),
        depths=map_places(scores, column="depth", variants=names),
        spreads=map_places(scores, column="spread", variants=names),
        variants=[
            _view_variant(output, scores, record=record, total=totals[record.name], place=place)
            for place, record in enumerate(evaluation.variants)
        ],
    )


def make_charts(page: Page) -> Sequence[Chart]:
    """The charts of a page, in their order; what can't be drawn is left out."""
    names = [view.record.name for view in page.variants]
    charts = (
        chart_accuracy(page.all_tasks, variants=names),
        chart_tasks(page.cells, variants=names),
        chart_reliability(page.measures, variants=names),
        chart_costs(page.all_tasks, variants=names),
    )
    return [chart for chart in charts if chart is not None]


def _view_variant(
    output: Location, scores: pa.Table, *, record: VariantRecord, total: CellSummary, place: int
) -> VariantView:
    failures = choose_failures(scores.filter(pc.equal(scores["variant"], record.name)).to_pylist())
    readings = read_readings(output / record.run, {reading_ids(row) for row in failures.shown})
    shown = [
        _view_failure(row, readings, anchor=f"variant-{place}-failure-{number}")
        for number, row in enumerate(failures.shown, start=1)
    ]
    return VariantView(record=record, total=total, failures=failures, shown=shown)


def _view_failure(row: Row, readings: ReadingRows, *, anchor: str) -> FailureView:
    turns = readings.memories.get(reading_ids(row), [])
    return FailureView(
        anchor=anchor,
        row=row,
        fault=fault_of(row),
        answer=readings.answers.get(reading_ids(row)),
        trace=make_trace(turns, references=row["references"], alternatives=row["metric"] != Metric.RULER_ALL),
    )
