"""Planted facts at servers that misbehave: each is right, or said to be unread, and none is "not stated"."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from tests.engines.misbehaving_server import (
    Fault,
    after,
    always,
    completion,
    cutting,
    every,
    keep_beginning,
    keep_both_ends,
    keep_end,
    limited,
    misbehaving_server,
    of_readings,
    thinking_in_secret,
    well,
)
from tests.engines.scripted_server import Reply
from tests.jobs import put_texts, small_arguments
from tests.tables import rows_in

WORDS = "the board met again and read what the office had sent about roads bridges schools and the harbour wall"
LENGTHS = (40, 120, 500, 700, 900, 1100)
"""Words of the documents; a chunk has some 450."""
KEYS = ("seal number", "shelf number")
QUESTIONS = [{"question_id": key[:4], "question": f"What is the {key}?", "answer_type": "number"} for key in KEYS]


def document(number: int) -> tuple[str, dict[str, float]]:
    """A text with a number under each key, at places of its own, and the numbers."""
    draw = random.Random(number)
    words = draw.choices(WORDS.split(), k=LENGTHS[number])
    values = {key: draw.randrange(1000, 9999) for key in KEYS}
    for place, key in zip((0.1, 0.6) if number % 2 else (0.45, 0.95), KEYS, strict=True):
        words.insert(int(place * len(words)), f"and so on. The {key} is {values[key]}. Then")
    return f"Minutes {number}. " + " ".join(words), {key[:4]: float(value) for key, value in values.items()}


DOCUMENTS = {f"d{number}": document(number) for number in range(len(LENGTHS))}
NUM_FACTS = len(DOCUMENTS) * len(KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    fault: Fault
    exit_code: int = 0
    num_right: int = NUM_FACTS
    said: str = ""
    """In the error messages of rows, or on stderr."""
    openai: dict[str, Any] = field(default_factory=dict)


def empty(**choice: Any) -> Fault:
    return of_readings(lambda text: {"content": "", **choice})


REJECTED = [{"Retry-After": "0.01"}, {"Retry-After": "Sun, 01 Mar 2020 11:00:00 GMT"}, {}]
FILTERED = {"content_filter_results": {"violence": {"filtered": True, "severity": "high"}}}
THINKER = thinking_in_secret(300)
MARKED = "Minutes 3."
"""Where a fault is of one document: in each prompt that shows its first chunk."""
SORRY = "I'm sorry, but I can't assist with that."
UNREAD: dict[str, Any] = {"exit_code": 4, "num_right": 0}
ONE_UNREAD: dict[str, Any] = {"exit_code": 4, "num_right": NUM_FACTS - len(KEYS)}
CUT: dict[str, Any] = {"exit_code": 2, "num_right": 0, "said": "OLLAMA_CONTEXT_LENGTH"}
UNCHECKED: dict[str, Any] = {"check_window": False}

CASES = {
    "well": Case(fault=well),
    "cuts": Case(fault=cutting(keep_end), **CUT),
    "cuts, found by counts": Case(fault=cutting(keep_end), openai=UNCHECKED, **CUT),
    "cuts the end, found by counts": Case(fault=cutting(keep_beginning), openai=UNCHECKED, **CUT),
    "cuts, counts what was sent": Case(fault=cutting(keep_end, usage="dishonest"), **CUT),
    "cuts, counts nothing": Case(fault=cutting(keep_end, usage="none"), **CUT),
    "cuts the end, counts nothing": Case(fault=cutting(keep_beginning, usage="none"), **CUT),
    "cuts the middle, counts what was sent": Case(fault=cutting(keep_both_ends, usage="dishonest"), **CUT),
    "thinks in secret": Case(fault=THINKER, exit_code=2, num_right=0, said="openai.thinking_tokens"),
    "thinks in secret, with room": Case(fault=THINKER, openai={"thinking_tokens": 400}),
    "empty, length": Case(fault=empty(finish_reason="length"), said="openai.thinking_tokens", **UNREAD),
    "empty, stop": Case(fault=empty(), said="wrote nothing", **UNREAD),
    "white space": Case(fault=empty(content=" \n\u200b"), said="wrote nothing", **UNREAD),
    "all in reasoning": Case(
        fault=of_readings(lambda text: {"content": None, "message": {"reasoning_content": text}}),
        said="nothing but a thought",
        **UNREAD,
    ),
    "thought not closed": Case(
        fault=of_readings(lambda text: {"content": f"<think>Maybe {text}", "finish_reason": "length"}),
        said="a thought that is not closed",
        **UNREAD,
    ),
    "answer doubled as reasoning": Case(fault=of_readings(lambda text: {"message": {"reasoning": text}})),
    "content in parts": Case(fault=of_readings(lambda text: {"content": [{"type": "text", "text": text}]})),
    "each third empty": Case(fault=every(3, lambda body, text: completion("", body))),
    "each third null": Case(fault=every(3, always(Reply(body=b"null")))),
    "each third without choices": Case(fault=every(3, always(Reply(body=b'{"choices": []}')))),
    "each third without a message": Case(
        fault=every(3, always(Reply(body=b'{"choices": [{"message": null, "finish_reason": "stop"}]}')))
    ),
    "each third without a reason": Case(fault=every(3, lambda body, text: completion(text, body, finish_reason=None))),
    "each third an error": Case(fault=every(3, lambda body, text: completion(text, body, finish_reason="error"))),
    "each third an error with 200": Case(fault=every(3, always(Reply(body=b'{"error": {"message": "no capacity"}}')))),
    "each third a page": Case(fault=every(3, always(Reply(body=b"<html><title>Login</title></html>")))),
    "each third a 502": Case(fault=every(3, always(Reply(status=502, body=b"<html>Bad gateway</html>")))),
    "each third cut off": Case(fault=every(3, always(Reply(reset=True)))),
    **{
        f"each fifth turned away, {headers}": Case(fault=every(5, always(Reply(status=429, headers=headers))))
        for headers in REJECTED
    },
    "limit of requests without a header": Case(fault=limited(10, seconds=0.5)),
    "stray 401s": Case(fault=every(4, always(Reply(status=401)), limit=12)),
    "key expires": Case(fault=after(20, always(Reply(status=401))), exit_code=2, num_right=0, said="OPENAI__API_KEY"),
    "filter by name": Case(
        fault=of_readings(lambda text: {"content": "", "finish_reason": "content_filter"}, where=MARKED),
        said="content filter",
        **ONE_UNREAD,
    ),
    "filter by a flag": Case(
        fault=of_readings(lambda text: {"content": "", **FILTERED}, where=MARKED), said="content filter", **ONE_UNREAD
    ),
    "filter as a blank": Case(
        fault=of_readings(lambda text: {"content": " "}, where=MARKED), said="wrote nothing", **ONE_UNREAD
    ),
    "refusal in words": Case(
        fault=of_readings(lambda text: {"content": SORRY}, where=MARKED), said="the model refused", **ONE_UNREAD
    ),
    "answers cut before they say anything": Case(
        fault=of_readings(
            lambda text: {"content": "Let me look at my notes", "finish_reason": "length"}, where="Write the answer in"
        ),
        said="a response that was cut before its answer",
        **UNREAD,
    ),
    "schema passed over after ten": Case(
        fault=after(10, lambda body, text: completion("It is 7, I think.", body), guided=True),
        exit_code=4,
        num_right=9,
        said="no object with a value",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_planted_facts_are_right_or_said_to_be_unread(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_texts(tmp_path / "in", {f"{name}.txt": text for name, (text, _) in DOCUMENTS.items()})
    with misbehaving_server(case.fault) as script:
        arguments = small_arguments(
            tmp_path,
            "tiny",
            tokenizer="tiny",
            engine="openai",
            openai={"api": "chat", "base_url": script.base_url, "outage_seconds": 20.0, **case.openai},
            window_tokens=6000,
            ask=QUESTIONS,
            policy={"chunk_tokens": 1200, "memory_tokens": 100, "answer_tokens": 100},
        )
        exit_code = main(["answer", *arguments])
    said = capsys.readouterr().err
    rows = rows_in(tmp_path / "run/answers") if exit_code != 2 else []
    right: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for row in rows:
        fact = DOCUMENTS[row["document_id"].removesuffix(".txt")][1][row["question_id"]]
        is_stated = row["status"] == "ok" and row["value_status"] in ("ok", "not_stated")
        if is_stated:
            (right if row["value_number"] == fact else wrong).append(row)
    assert [(row["document_id"], row["answer"], row["value"]) for row in wrong] == []
    assert (exit_code, len(right)) == (case.exit_code, case.num_right), said[-3000:]
    assert case.said in said + " ".join(f"{row['error_message']} {row['follow_up_error']}" for row in rows)
