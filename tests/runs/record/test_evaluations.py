"""Evaluations on the card of a scan: whose they are, and what the card says of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.domain.closing.plan import EVIDENCE, SUPPORT, VALUE
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.runs.record.card import card
from memagent_batch.runs.record.estimates import Share
from memagent_batch.runs.record.evaluations import (
    CLOSING_KNOBS,
    EVALUATIONS_FOLDER,
    ClosingTurn,
    LengthScore,
    Reader,
    ReaderEvaluation,
    Readers,
    Scores,
    differing_knobs,
    read_evaluations,
    readers_of,
    whom,
)
from memagent_batch.runs.record.measured import SHOWN_EVALUATIONS
from tests.runs.recorded_nights import Nights

TURN = ClosingTurn(texts="t", max_tokens=None)
SHARE = Share(value=0.93, low=0.88, high=0.97)
PARTS: dict[str, Any] = {
    "model": "small",
    "model_sha256": "s",
    "policy": {"kind": "truncate", "chunk_tokens": 500},
}
CHEAP = Reader(reader_fingerprint="c", extraction="auto", parts=PARTS)
BETTER = Reader(
    reader_fingerprint="b", extraction="auto", parts=PARTS | {"policy": {"kind": "overwrite", "chunk_tokens": 500}}
)


def readers(first: Reader, **rest: Any) -> Readers:
    return Readers(first=first, **{"closing": {}, **rest})


def with_parts(reader: Reader, **parts: Any) -> Reader:
    return replace(reader, parts={**reader.parts, **parts})


def evaluation_of(readers: Readers) -> ReaderEvaluation:
    return ReaderEvaluation(
        suite="s3://bucket/suite",
        suite_sha256="e",
        variant="v",
        run_id="20261101T000000Z-0",
        finished_at="2026-11-01T00:00:00+00:00",
        score_on="answer",
        readers=readers,
        free=Scores(
            num_readings=40,
            score=SHARE,
            lengths=(
                LengthScore(length_tokens=4096, num_readings=30, score=SHARE),
                LengthScore(length_tokens=None, num_readings=10, score=SHARE),
            ),
            abstained=None,
            abstained_wrongly=Share(value=0.02, low=0.0, high=0.1),
        ),
        typed=None,
        evidence_hit=None,
    )


def attached(nights: Nights, evaluation: ReaderEvaluation) -> None:
    write_json(nights.output / f"{EVALUATIONS_FOLDER}/{evaluation.run_id}.json", asdict(evaluation))


def card_of(nights: Nights, run_id: str) -> str:
    return (nights.output / f"runs/{run_id}/card.md").read_bytes().decode()


@pytest.mark.parametrize(
    ("evaluated", "scan", "of"),
    [
        (readers(CHEAP), readers(CHEAP), "this reader"),
        (readers(with_parts(CHEAP, model="moved/small")), readers(CHEAP), "this reader"),
        (readers(replace(CHEAP, extraction="boxed")), readers(CHEAP), None),
        (readers(BETTER), readers(CHEAP), None),
        (readers(CHEAP, closing={EVIDENCE: TURN}), readers(CHEAP), "this reader"),
    ],
)
def test_evaluation_is_of_the_readers_that_it_was_read_with(evaluated: Readers, scan: Readers, of: str | None) -> None:
    assert whom(evaluated, scan=scan) == of


@pytest.mark.parametrize(
    ("evaluated", "scan", "names"),
    [
        (readers(with_parts(BETTER, model="b")), readers(CHEAP), ["policy.kind"]),
        (readers(with_parts(CHEAP, model_sha256="t")), readers(CHEAP), ["model_sha256"]),
        (
            readers(with_parts(CHEAP, policy={"kind": "truncate", "chunk_tokens": 9})),
            readers(CHEAP),
            ["policy.chunk_tokens"],
        ),
    ],
)
def test_other_readers_are_told_by_the_knobs_that_differ(evaluated: Readers, scan: Readers, names: list[str]) -> None:
    assert differing_knobs(evaluated, scan=scan) == names


def test_card_shows_an_evaluation_of_its_reader_and_names_what_another_one_had(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    first = nights.run({"a": "one"}, {"q": "Who?"})
    assert "No evaluation of its reader was attached" in card_of(nights, first["run_id"])
    evaluation = evaluation_of(readers_of(json.loads((tmp_path / "run/manifest.json").read_text())))
    attached(nights, evaluation)
    assert [*read_evaluations(nights.output).values()] == [evaluation]
    text = card_of(nights, nights.run({"a": "one"}, {"q": "Who?"})["run_id"])
    assert "by this reader:\n  - 40 readings scored on answer: score 93.0 % (88.0 to 97.0)" in text
    assert "(88.0 to 97.0); says not stated where it is 2.0 % (0 to 10.0)\n" in text
    assert "    - 4,096 tokens: 30 readings, score 93.0 % (88.0 to 97.0)" in text
    assert text.count(" tokens: ") == 1
    text = card_of(nights, nights.run({"a": "one"}, {"q": "Who?"}, reader="g", extraction="boxed")["run_id"])
    assert "by another reader, whose scores say nothing of this scan; these differ: extraction" in text
    assert "93.0 %" not in text


@pytest.mark.parametrize(
    ("closing", "shown", "left_out"),
    [
        ({VALUE: TURN, EVIDENCE: TURN}, {"typed", "evidence"}, ""),
        ({VALUE: TURN, EVIDENCE: TURN, SUPPORT: TURN}, {"typed", "evidence"}, ""),
        ({}, set(), "(answer_type, closing.evidence): value, evidence"),
        ({VALUE: TURN}, {"typed"}, "(closing.evidence): evidence"),
        (
            {VALUE: TURN, EVIDENCE: replace(TURN, max_tokens=64)},
            {"typed"},
            "(closing.evidence_tokens): evidence",
        ),
        (
            {VALUE: replace(TURN, max_tokens=9), EVIDENCE: replace(TURN, texts="u")},
            set(),
            "(closing.json_tokens, texts of closing turns): value, evidence",
        ),
    ],
)
def test_card_shows_what_closing_turns_bring_where_those_of_the_scan_are_alike(
    tmp_path: Path, closing: dict[str, ClosingTurn], shown: set[str], left_out: str
) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Who?"})
    past = nights.last()
    knobs = {CLOSING_KNOBS[kind]: turn.max_tokens for kind, turn in closing.items()}
    scan: Any = {
        **past.manifest,
        "closing_texts": {kind: turn.texts for kind, turn in closing.items()},
        "settings": {**past.manifest["settings"], "closing": {"json_tokens": None, "evidence_tokens": None} | knobs},
    }
    own = replace(readers_of(past.manifest), closing={VALUE: TURN, EVIDENCE: TURN})
    made = evaluation_of(own)
    typed = Scores(num_readings=7, score=SHARE, lengths=(), abstained=SHARE, abstained_wrongly=None)
    made = replace(made, typed=typed, evidence_hit=Share(value=0.5, low=0.4, high=0.6))
    text = card(replace(past, manifest=scan), estimates=[], evaluations=[made])
    assert "  - 40 readings scored on answer: score 93.0 %" in text, "the answer is the reader's own"
    typed_line = (
        "  - 7 readings of typed questions: score 93.0 % (88.0 to 97.0); says not stated where it is not 93.0 %"
    )
    assert (typed_line in text) == ("typed" in shown)
    assert ("evidence on a right sentence 50.0 % (40.0 to 60.0)" in text) == ("evidence" in shown)
    lines = [line for line in text.splitlines() if "not shown" in line]
    assert [line.partition("differ ")[2] for line in lines] == ([left_out] if left_out else [])


def test_card_shows_evaluations_of_its_reader_before_later_ones_of_others(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Who?"})
    past = nights.last()
    own = evaluation_of(readers_of(past.manifest))
    others = [evaluation_of(readers(BETTER))] * SHOWN_EVALUATIONS
    text = card(past, estimates=[], evaluations=[*others, own])
    assert "by this reader:" in text
    assert text.count("by another reader") == SHOWN_EVALUATIONS - 1
    assert "- and 1 more" in text


def test_damaged_evaluation_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    whole: dict[str, Any] = asdict(evaluation_of(readers(CHEAP)))
    first = whole["readers"]["first"]
    lacking = {
        name: whole | {"readers": whole["readers"] | {"first": {key: first[key] for key in first if key != name}}}
        for name in ("reader_fingerprint", "extraction", "parts")
    }
    lacking["closing"] = whole | {"readers": {"first": first}}
    lacking["second"] = whole | {"readers": whole["readers"] | {"second": first}}
    texts = {name: json.dumps(value) for name, value in lacking.items()} | {"a": "{", "b": "{}", "c": "[]"}
    texts["d"] = json.dumps({**whole, "suite": ["the secret place"]})
    for name, text in texts.items():
        (nights.output / f"{EVALUATIONS_FOLDER}/{name}.json").write_bytes(text.encode())
    assert read_evaluations(nights.output) == {}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(texts)
    assert any("extraction.json" in line and "readers.first.extraction" in line for line in lines)
    assert not any("\n" in line or "secret" in line for line in lines)
    manifest = nights.run({"a": "one"}, {"q": "Who?"})
    assert "No evaluation of its reader was attached" in card_of(nights, manifest["run_id"])
    (nights.output / f"{EVALUATIONS_FOLDER}/whole.json").write_bytes(json.dumps(whole).encode())
    assert [*read_evaluations(nights.output)] == [f"{EVALUATIONS_FOLDER}/whole.json"]
