"""What the readings of each variant come to, from their scores: cells, measures, comparisons, and the report of all.

Each is a query over a table of `SCORES`. Intervals are 95 %; readings of one document are not counted as independent.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import pyarrow as pa

from memagent_batch.apps.evaluation.statistics import holm, mean_interval, sign_test
from memagent_batch.apps.templates.pages import markdown_template
from memagent_batch.data.store.database import run_query
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.loop.texts.escapes import unescaped

ALL_TASKS = "all tasks"
"""Stands for the task where all of them are taken together."""
_CELLS = """
select
    variant, if($by_task, task, $all_tasks) as task, if($by_length, length_tokens, null) as length_tokens,
    count(*) as n, list({'document': document_id, 'score': score}) as score,
    count(*) filter (status = 'failed') as num_failed,
    count(*) filter (status = 'ok' and not answered) as num_unanswered,
    count(*) filter (status = 'missing') as num_missing,
    avg(num_prompt_tokens + num_completion_tokens) filter (status <> 'missing') as mean_tokens,
    avg(engine_seconds) filter (status <> 'missing') as mean_engine_seconds
from scores group by all
"""
_SHARES = {
    "values_right": ("value_right", "value_right is not null"),
    "values_invalid": ("coalesce(value_status = 'invalid', false)", "value_right is not null"),
    "evidence_hit": ("evidence_hit", "evidence_f1 is not null"),
    "absent_right": ("abstained", "is_absent"),
    "present_lost": ("abstained", "not is_absent"),
}
"""Measures that are shares: what is counted, among which readings."""
_MEASURES = f"""
select
    variant, coalesce(task, $all_tasks) as task, bool_or(is_absent or answer_type is not null) as may_abstain,
    avg(evidence_precision) as evidence_precision, avg(evidence_recall) as evidence_recall,
    avg(evidence_f1) as evidence_f1,
    {
    ", ".join(
        f"list({{'document': document_id, 'score': ({counted})::double}}) filter ({among}) as {name}"
        for name, (counted, among) in _SHARES.items()
    )
}
from scores group by grouping sets ((variant), (variant, task))
having may_abstain or count(value_right) + count(evidence_f1) > 0
"""
_COMPARISONS = """
with documents as (
    select variant, coalesce(task, $all_tasks) as task, document_id, round(avg(score), 12) as score
    from scores group by grouping sets ((variant, task, document_id), (variant, document_id)))
select
    other.variant, $base as base, task, count(*) filter (other.score > base.score) as num_better,
    count(*) filter (other.score < base.score) as num_worse, count(*) filter (other.score = base.score) as num_equal
from documents as other join documents as base using (task, document_id)
where base.variant = $base and other.variant <> $base group by all
"""
_TABLE = re.compile(r"^\|.*\n\|[-|: ]+\n(?:\|.*\n)+", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")


def summarise(scores: pa.Table, *, by: Collection[str] = ("task", "length_tokens")) -> list[Row]:
    """The cells of a table: variants in their order, tasks by name, lengths from short to long.

    A cell has its readings `n`, whatever became of them, their mean `score` with `low` and `high`, how many failed,
    have nothing to score or no row among the answers (each scores 0), and the means of tokens and of seconds inside the
    engine, over all turns of a reading. `by`: columns that make a cell beside the variant.
    """
    cells = _query(_CELLS, scores, by_task="task" in by, by_length="length_tokens" in by)
    shares = [{**cell, **_share_of(cell["score"])} for cell in cells]
    return sorted(shares, key=lambda cell: (*_place(cell, scores), cell["length_tokens"] or float("inf")))


def measure(scores: pa.Table) -> list[Row]:
    """The measures of each variant: all tasks together, then each task by name; those that are empty are left out.

    Each of `_SHARES` has its readings `n`, `score`, `low` and `high`, and is None if nothing of the kind was asked. The
    means of evidence are those of the share of it that overlaps a right sentence, of the share of the right sentences
    that it overlaps, and of their F1.
    """
    cells = _query(_MEASURES, scores)
    shares = [{**cell, **{name: cell[name] and _share_of(cell[name]) for name in _SHARES}} for cell in cells]
    return sorted(
        ({**each, "present_lost": each["present_lost"] if each["may_abstain"] else None} for each in shares),
        key=lambda each: _place(each, scores),
    )


def compare(scores: pa.Table) -> list[Row]:
    """Each further variant against the first: all tasks together, then each task by name.

    The unit is a document, by the mean score of its readings: how many are better, worse and equal, and the chance
    `p_corrected` of a split at least so uneven if neither variant is better (sign test), corrected (Holm) for all
    comparisons of single tasks, or for those of all tasks together.
    """
    found = _query(_COMPARISONS, scores, base=scores["variant"][0].as_py())
    for is_total in (True, False):
        family = [each for each in found if (each["task"] == ALL_TASKS) == is_total]
        chances = holm([sign_test(each["num_better"], each["num_worse"]) for each in family])
        for each, chance in zip(family, chances, strict=True):
            each["p_corrected"] = chance
    return sorted(found, key=lambda each: _place(each, scores))


def _query(sql: str, scores: pa.Table, **parameters: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_query(sql, {"scores": scores}, all_tasks=ALL_TASKS, **parameters).to_pylist()
    return rows


def _place(row: Row, scores: pa.Table) -> tuple[int, bool, str]:
    """Where a row stands: variants in the order of their scores, all tasks together before each of them."""
    return scores["variant"].unique().to_pylist().index(row["variant"]), *_by_task(row)


def _share_of(scored: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    by_document = defaultdict[str, list[float]](list)
    for each in scored:
        by_document[each["document"]].append(each["score"])
    interval = mean_interval([*by_document.values()])
    mean = fmean(each["score"] for each in scored)
    return {"n": len(scored), "score": mean, "low": interval.low, "high": interval.high}


def report_text(evaluation: Mapping[str, Any], scores: pa.Table) -> str:
    """The report as Markdown, for the terminal or a file; `evaluation` is what `evaluation.json` says."""
    cells = [*summarise(scores, by=("length_tokens",)), *summarise(scores)]
    text = markdown_template("memagent_batch.apps.evaluation", "report.md.j2").render(
        evaluation=evaluation,
        totals={cell["variant"]: cell for cell in summarise(scores, by=())},
        comparisons=compare(scores),
        measures=sorted(measure(scores), key=_by_task),
        cells=sorted(cells, key=lambda cell: (*_by_task(cell), cell["length_tokens"] or 0)),
    )
    return _TABLE.sub(lambda found: _aligned(found[0]), text)


def _by_task(row: Row) -> tuple[bool, str]:
    return row["task"] != ALL_TASKS, row["task"]


def _aligned(table: str) -> str:
    """A Markdown table whose columns stand below each other once it is shown; numbers to the right."""
    head, _, *rows = ([cell.strip() for cell in _CELL_END.split(line)[1:-1]] for line in table.splitlines())
    columns = map(_aligned_column, zip(head, *rows, strict=True))
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*columns, strict=True))


def _aligned_column(column: Sequence[str]) -> list[str]:
    width = max(2, *(len(unescaped(cell)) for cell in column))
    is_text = any(cell[:1].isalpha() for cell in column[1:])
    gaps = [" " * (width - len(unescaped(cell))) for cell in column]
    head, *rows = (cell + gap if is_text else gap + cell for cell, gap in zip(column, gaps, strict=True))
    return [head, "-" * (width - 1) + ("-" if is_text else ":"), *rows]
