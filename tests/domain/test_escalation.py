"""Which answers are doubtful, and for which reason."""

from typing import Any

import pytest

from memagent_batch.domain.escalation import Doubt, Doubts, Verdicts

ALL = Doubts(when=tuple(Doubt), confidence_below=0.5, answers=("Not stated",))


@pytest.mark.parametrize(
    ("status", "verdicts", "answer", "doubt"),
    [
        ("failed", {}, None, Doubt.FAILED),
        ("not_read", {"value_status": "invalid"}, "not stated", None),
        ("ok", {"value_status": "invalid", "confidence": 0.1}, "x", Doubt.INVALID),
        ("ok", {"value_status": "not_stated"}, "not stated", Doubt.NOT_STATED),
        ("ok", {"value_status": "ok"}, " not  STATED ", Doubt.ANSWER),
        ("ok", {"support": "partly"}, "x", Doubt.WEAK_SUPPORT),
        ("ok", {"support": "supported"}, "x", None),
        ("ok", {"has_evidence": False}, "x", Doubt.WEAK_SUPPORT),
        ("ok", {"has_evidence": True}, "x", None),
        ("ok", {"confidence": 0.49}, None, Doubt.LOW_CONFIDENCE),
        ("ok", {"confidence": 0.5}, None, None),
        ("ok", {}, None, None),
    ],
)
def test_doubt_is_the_first_reason_that_holds(
    status: str, verdicts: dict[str, Any], answer: str | None, doubt: Doubt | None
) -> None:
    assert ALL.of(status, verdicts=Verdicts(**verdicts), answer=answer) is doubt


def test_reasons_that_were_not_chosen_do_not_count() -> None:
    doubts = Doubts(when=(Doubt.FAILED,), confidence_below=0.5)
    assert doubts.of("ok", verdicts=Verdicts(value_status="invalid", confidence=0.1)) is None
    assert doubts.of("failed", verdicts=Verdicts()) is Doubt.FAILED


@pytest.mark.parametrize(
    ("status", "verdicts", "is_doubtful"),
    [
        ("ok", {"value_status": "ok", "value_bool": False, "confidence": 0.8}, True),
        ("ok", {"value_status": "ok", "value_bool": False, "confidence": 0.81}, False),
        ("ok", {"value_status": "not_stated", "confidence": 0.7}, True),
        ("ok", {"value_status": "not_stated", "confidence": 0.9}, False),
        ("ok", {"value_status": "ok", "value_bool": True, "confidence": 0.5}, False),
        ("ok", {"value_status": "ok", "value_bool": False}, True),
        ("ok", {"value_status": "invalid", "confidence": 0.99}, True),
        ("failed", {}, True),
        ("not_read", {}, False),
    ],
)
def test_target_doubts_what_is_no_sure_no(status: str, verdicts: dict[str, Any], is_doubtful: bool) -> None:
    doubts = Doubts(when=(Doubt.TARGET,), thresholds={"q": 0.8})
    assert doubts.of(status, verdicts=Verdicts(**verdicts), question_hash="q") == (
        Doubt.TARGET if is_doubtful else None
    )
    assert doubts.of(status, verdicts=Verdicts(**verdicts), question_hash="another") is None
