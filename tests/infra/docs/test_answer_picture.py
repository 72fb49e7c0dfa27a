import re
from xml.etree import ElementTree

from infra.docs.answer_picture import PICTURE, Trace, draw, sentence_span

TEXT = "Nothing here. The code of <lake> is 42. It rained. It rained again, and again."


def turn(
    number: int, memory: str, *, start: int, stop: int, changed: bool = True, kind: str = "update"
) -> dict[str, object]:
    span = {"char_start": start, "char_end": stop, "chunk_index": number}
    return {"turn": number, "memory": memory, "changed": changed, "kind": kind, **span}


def trace() -> Trace:
    answer = {"document_id": "d", "question": "Which code?", "answer": "42", "response": "\\boxed{42}", "status": "ok"}
    counts = {"num_document_tokens": 4_000, "num_chunks": 3, "num_turns": 4, "num_prompt_tokens": 5_000}
    turns = [
        turn(0, "Nothing noted.", start=0, stop=13),
        turn(1, "The code is 42.", start=13, stop=60),
        turn(2, "The code is 42.", start=60, stop=len(TEXT), changed=False),
        turn(3, "The code is 42.", start=0, stop=0, changed=False, kind="answer"),
    ]
    return Trace(answer={**answer, **counts}, turns=turns, text=TEXT)


def test_sentence_span_holds_the_sentence_and_no_other() -> None:
    start, stop = sentence_span(TEXT, "42", start=0, stop=len(TEXT))
    assert TEXT[start:stop] == "The code of <lake> is 42."


def test_picture_shows_question_turn_sentence_and_answer_as_text() -> None:
    words = ["".join(element.itertext()) for element in ElementTree.fromstring(draw(trace())).iter()]
    for shown in (
        "Which code?",
        "turn 1",
        "The code of <lake> is 42.",
        "The code is 42.",
        "turn 2",
        "\\boxed{42}",
        "42",
    ):
        assert shown in words
    assert "memory unchanged" in words


def test_picture_in_docs_is_an_answer_with_its_trace() -> None:
    words = ["".join(element.itertext()) for element in ElementTree.parse(PICTURE).getroot().iter()]
    assert "memory unchanged" in words
    assert "the model answers from the memory alone:" in words


def test_pages_with_the_picture_say_how_many_tokens_it_has() -> None:
    words = " ".join(ElementTree.parse(PICTURE).getroot().itertext())
    for page in (PICTURE.parents[1] / "index.md", PICTURE.parents[2] / "README.md"):
        (tokens,) = re.findall(r"drawn from its tables: ([0-9,]+) tokens", page.read_text(encoding="utf-8"))
        assert f" {tokens} tokens in " in words
