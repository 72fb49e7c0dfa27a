"""A small scan of three nights with all tables."""

from pathlib import Path
from typing import Any

from tests.flows.grown import Stream, text_of

ASK = [
    {"question_id": "who", "question": "Who?"},
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
    {"question_id": "often", "question": "How often?", "answer_type": "number", "unit": "EUR"},
]
NIGHTS: tuple[dict[str, Any], ...] = (
    {"a": text_of("Ann", days=4), "b": text_of("Bob", days=2), "none": None},
    {"a": text_of("Ann", days=5), "b": text_of("Bob", days=2), "c": "A cat.", "none": None},
    {"a": text_of("Ann", days=5), "c": "A cat.", "d": text_of("Dan", days=3), "none": None},
)


def make_scan(folder: Path, model: str, **settings: Any) -> Stream:
    """Three nights: a document grows, one is removed, one can't be read."""
    stream = Stream(folder, model, ask=ASK, follow_ups={"evidence": True, "support": True}, **settings)
    for texts in NIGHTS:
        stream.night(texts)
    return stream
