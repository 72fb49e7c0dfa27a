"""The types of rows say what the schemas say: the same columns, and which of them may be null."""

from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from memagent_batch.log.schemas import CLOSING_LOG, OUTCOME_LOG, TURN_LOG, ClosingRow, OutcomeRow, TurnRow
from memagent_batch.ray_data import tokenise
from memagent_batch.runs.comparison import DIFFERENCES, DifferenceRow
from memagent_batch.runs.manifest import PART_REPORT, PartReport
from memagent_batch.runs.parts import ENDED, EndedRow
from memagent_batch.runs.tables import ANSWERS, EVIDENCE, AnswerRow, EvidenceRow
from memagent_batch.training.rollouts.write import ROLLOUTS_REPORT, RolloutsReport

COUNTED = {"num_tokens"}
"""What a turn has in the place of its tokens where they are not read."""


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (TURN_LOG, TurnRow),
        (OUTCOME_LOG, OutcomeRow),
        (CLOSING_LOG, ClosingRow),
        (ANSWERS, AnswerRow),
        (EVIDENCE, EvidenceRow),
        (DIFFERENCES, DifferenceRow),
    ],
    ids=["turn", "outcome", "closing", "answer", "evidence", "difference"],
)
def test_row_type_has_the_columns_of_its_schema_and_their_nulls(schema: pa.Schema, row: Any) -> None:
    hints = {name: kind for name, kind in get_type_hints(row).items() if name not in COUNTED}
    assert hints.keys() == set(schema.names)
    nullable = {name for name, kind in hints.items() if type(None) in getattr(kind, "__args__", ())}
    assert nullable == {field.name for field in schema if field.nullable}


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (ENDED, EndedRow),
        (PART_REPORT, PartReport),
        (tokenise.COUNTED, tokenise.CountedDocument),
        (ROLLOUTS_REPORT, RolloutsReport),
    ],
    ids=["ended", "report", "counted", "rollouts"],
)
def test_row_type_of_a_task_has_the_columns_of_its_schema(schema: pa.Schema, row: Any) -> None:
    assert get_type_hints(row).keys() == set(schema.names)
