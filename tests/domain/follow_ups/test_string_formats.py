import subprocess
import sys

import pytest

from memagent_batch.loop.follow_ups.json_schemas import FORMAT_CHECKER, FORMATS

BARE_INSTALL = """
import sys
sys.modules["rfc3339_validator"] = None  # as where it is not installed
from memagent_batch.loop.follow_ups.answer_types import Json
from memagent_batch.loop.follow_ups.values import parse_value
from memagent_batch.types import Completion, FinishReason

for kind in sys.argv[1:]:
    schema = Json({"type": "object", "properties": {"at": {"type": "string", "format": kind}}, "required": ["at"]})
    written = Completion(token_ids=(1,), text='{"at":"tomorrow"}', finish_reason=FinishReason.STOP)
    print(kind, parse_value(written, schema, answer=None).status.value)
"""


def test_value_of_no_format_is_invalid_without_optional_packages() -> None:
    names = sorted(FORMATS)
    program = [sys.executable, "-c", BARE_INSTALL, *names]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"{name} invalid" for name in names]


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("2026-11-23T10:00:00Z", True),
        ("2026-11-23t10:00:00.25+05:30", True),
        ("2026-02-29T10:00:00Z", False),
        ("2026-11-23 10:00:00Z", False),
        ("2026-11-23T10:00:00", False),
        ("2026-11-23T10:00:00+24:00", False),
        ("2026-11-23T10:00:00Z\n", False),
        ("2026-11-23T1٠:00:00Z", False),
        ("1998-12-31T23:59:60Z", False),
    ],
)
def test_date_time_and_time_are_those_of_rfc_3339(text: str, *, is_valid: bool) -> None:
    assert FORMAT_CHECKER.conforms(text, "date-time") is is_valid
    if is_valid:
        assert FORMAT_CHECKER.conforms(text[len("2026-11-23T") :], "time")


@pytest.mark.parametrize("time", ["10:00", "10:00:00", "25:00:00Z", "10:00:61Z", "tomorrow"])
def test_time_without_zone_or_beyond_the_day_is_none(time: str) -> None:
    assert not FORMAT_CHECKER.conforms(time, "time")
