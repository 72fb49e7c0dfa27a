"""Evaluations on the card of a scan: whose they are, and what the card says of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.runs.record.estimates import Share
from memagent_batch.runs.record.evaluations import (
    EVALUATIONS_FOLDER,
    LengthScore,
    Reader,
    ReaderEvaluation,
    Readers,
    differing_knobs,
    read_evaluations,
    readers_of,
    whom,
)
from tests.runs.recorded_nights import Nights

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
ESCALATE = {"when": ["failed"], "answers": []}
BOTH = Readers(first=CHEAP, second=BETTER, escalate=ESCALATE)


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
        num_readings=40,
        score=SHARE,
        lengths=(
            LengthScore(length_tokens=4096, num_readings=30, score=SHARE),
            LengthScore(length_tokens=None, num_readings=10, score=SHARE),
        ),
        evidence_hit=Share(value=0.5, low=0.4, high=0.6),
        abstained=None,
        abstained_wrongly=Share(value=0.02, low=0.0, high=0.1),
    )


def attached(nights: Nights, evaluation: ReaderEvaluation) -> None:
    write_json(nights.output / f"{EVALUATIONS_FOLDER}/{evaluation.run_id}.json", asdict(evaluation))


def card_of(nights: Nights, run_id: str) -> str:
    return (nights.output / f"runs/{run_id}/card.md").read_bytes().decode()


@pytest.mark.parametrize(
    ("evaluated", "scan", "of"),
    [
        (Readers(first=CHEAP), Readers(first=CHEAP), "this reader"),
        (Readers(first=with_parts(CHEAP, model="moved/small")), Readers(first=CHEAP), "this reader"),
        (Readers(first=replace(CHEAP, extraction="boxed")), Readers(first=CHEAP), None),
        (Readers(first=BETTER), Readers(first=CHEAP), None),
        (Readers(first=CHEAP), BOTH, "the first reader alone"),
        (Readers(first=BETTER), BOTH, "the second reader alone"),
        (BOTH, BOTH, "both readers"),
        (BOTH, Readers(first=CHEAP), None),
        (replace(BOTH, escalate={"when": ["not_stated"]}), BOTH, None),
        (replace(BOTH, second=CHEAP), BOTH, None),
    ],
)
def test_evaluation_is_of_the_readers_that_it_was_read_with(evaluated: Readers, scan: Readers, of: str | None) -> None:
    assert whom(evaluated, scan=scan) == of


@pytest.mark.parametrize(
    ("evaluated", "scan", "names"),
    [
        (Readers(first=with_parts(BETTER, model="b")), Readers(first=CHEAP), ["policy.kind"]),
        (Readers(first=with_parts(CHEAP, model_sha256="t")), Readers(first=CHEAP), ["model_sha256"]),
        (replace(BOTH, escalate={"when": ["invalid"], "answers": []}), BOTH, ["escalate.when"]),
        (
            replace(BOTH, second=with_parts(BETTER, policy={"kind": "overwrite", "chunk_tokens": 9})),
            BOTH,
            ["escalate.to.policy.chunk_tokens"],
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
    assert "by this reader, 40 readings scored on answer: score 93.0 % (88.0 to 97.0)" in text
    assert "evidence on a right sentence 50.0 % (40.0 to 60.0); says not stated where it is 2.0 %" in text
    assert "  - 4,096 tokens: 30 readings, score 93.0 % (88.0 to 97.0)" in text
    assert text.count(" tokens: ") == 1
    text = card_of(nights, nights.run({"a": "one"}, {"q": "Who?"}, reader="g", extraction="boxed")["run_id"])
    assert "by another reader, whose scores say nothing of this scan; these differ: extraction" in text
    assert "93.0 %" not in text


def test_damaged_evaluation_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    whole: dict[str, Any] = asdict(evaluation_of(BOTH))
    first = whole["readers"]["first"]
    lacking = {
        name: whole | {"readers": whole["readers"] | {"first": {key: first[key] for key in first if key != name}}}
        for name in ("reader_fingerprint", "extraction", "parts")
    }
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
