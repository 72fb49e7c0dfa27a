import pytest

from memagent_batch.domain.closing.answer_types import Bool, Date, Json, Label, Labels, Number, ValueType
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.evaluation.suites.typed import written_value

SCHEMA = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}


@pytest.mark.parametrize(
    ("text", "value_type", "value"),
    [
        ("Yes", Bool(), "true"),
        ("false", Bool(), "false"),
        ("B ", Label("a", "b"), '"b"'),
        ("c|A", Labels("a", "b", "c"), '["a", "c"]'),
        ('["b"]', Labels("a", "b", "c"), '["b"]'),
        ("none", Labels("a", "b"), "[]"),
        ("-1200", Number(unit="EUR"), "-1200"),
        ("2.50", Number(), "2.5"),
        ("2026-11-23", Date(), '"2026-11-23"'),
        ('{"days": 3}', Json(SCHEMA), '{"days": 3}'),
        ("Ada", ValueType(), '"Ada"'),
        (" Not  stated.", Number(), None),
    ],
)
def test_written_value_of_each_type(text: str, value_type: ValueType, value: str | None) -> None:
    written = written_value(text, value_type)
    assert written.value == value
    assert written.status is (ValueStatus.NOT_STATED if value is None else ValueStatus.OK)


@pytest.mark.parametrize(
    ("text", "value_type"),
    [
        ("perhaps", Bool()),
        ("c", Label("a", "b")),
        ("a|c", Labels("a", "b")),
        ("1,200", Number()),
        ("nan", Number()),
        ("23.11.2026", Date()),
        ('{"days": "3"}', Json(SCHEMA)),
        ("{", Json(SCHEMA)),
        ("not stated", Number(not_stated=False)),
    ],
)
def test_written_value_that_is_none_of_its_type_is_refused(text: str, value_type: ValueType) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        written_value(text, value_type)
