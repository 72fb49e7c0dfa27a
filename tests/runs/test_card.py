"""The card of a run: what it says, and what it never says."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.closing.prompts import EVIDENCE, SUPPORT, VALUE
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.runs.estimates import (
    EVALUATIONS_FOLDER,
    FOLLOW_UP_LIMITS,
    LengthScore,
    ReaderEvaluation,
    ReviewEstimates,
    Scores,
    Share,
    evaluation_file,
    follow_up_texts,
    read_evaluations,
)
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record import SHOWN_EVALUATIONS, card
from tests.runs.recorded_nights import FAILS, Nights

HOSTILE = "</p><script>alert(1)</script> | `code` [link](http://x) \u202e\n# Heading"


SECRET = "hunter2-hunter2"


def card_of(nights: Nights, run_id: str) -> str:
    return (nights.output / f"runs/{run_id}/card.md").read_bytes().decode()


def test_share_is_certain_only_where_it_is() -> None:
    assert str(Share(value=0.9996, low=0.9912, high=1.0)) == "99.96 % (99.12 to 100)"
    assert str(Share(value=None, low=0.0, high=0.00001)) == "not known (0 to 0.01)"


def test_card_says_what_was_asked_and_what_came_out(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    text = card_of(nights, nights.run({"a": "one", "b": FAILS, "none": None}, {"q": "Who signed?"})["run_id"])
    titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert titles == [
        "What was asked",
        "Of what",
        "By what",
        "What came out",
        "How good it is",
        "Where it fails",
        "Limits",
        "How to repeat it",
    ]
    assert "- q: Who signed?" in text
    assert "| 3 | 1 | 2 | 0 |" in text
    assert "Readings that failed: 2 (1 E: the engine refused it; 1 DocumentError: p: the text is null)" in text
    assert "Documents that can't be read or are not there: 1" in text
    assert "There is no estimate of it here" in text


def test_card_of_hostile_texts_has_no_markup_of_theirs(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    knobs: dict[str, Any] = {
        "weights_version": HOSTILE,
        "storage_options": {"secret": SECRET},
        "openai": {"api_key": SECRET},
    }
    manifest = nights.run({HOSTILE: "one"}, {HOSTILE: HOSTILE}, **knobs)
    text = card_of(nights, manifest["run_id"])
    shown, _, job = text.partition("```yaml")
    assert SECRET not in text
    assert "\u202e" not in text
    assert not re.search(r"(?<!\\)[<>`|\[\]]", shown.replace("| asked | ok", "").split("## What came out")[0])
    assert re.findall(r"^# .*$", text, flags=re.MULTILINE) == [f"# Scan {manifest['run_id']}"]
    assert job.count("```") == 1


def test_card_repeats_the_run_by_a_job_file(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    knobs: dict[str, Any] = {
        "policy": {"kind": "gated", "chunk_tokens": 77},
        "weights_version": "may",
        "sampling": {"seed": 3},
    }
    text = card_of(nights, nights.run({"a": "one"}, {"q": "Why?"}, **knobs)["run_id"])
    job = json.loads(text.partition("```yaml")[2].partition("```")[0])
    assert job["policy"] == knobs["policy"]
    again = job_of(**job)
    assert again.agent == AgentConfig(**knobs)
    assert (again.output, again.documents) == (nights.output.uri, ("docs",))


def test_card_has_the_latest_estimates_first(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Why?"})
    share = Share(value=0.93, low=0.88, high=0.97)
    told = ReviewEstimates(
        review_id="q-1",
        run_id="x",
        question_id="q",
        looked_for="value_bool = true",
        num_labels=750,
        shares={"recall": share, "evidence": None},
        remarks=["80 readings of the sample are not labelled"],
    )
    text = card(nights.last(), estimates=[told])
    assert "- q, value\\_bool = true, of run x, 750 labels: recall 93.0 % (88.0 to 97.0)\n" in text
    assert "  - 80 readings of the sample are not labelled\n" in text


SHARE = Share(value=0.93, low=0.88, high=0.97)


def evaluation_of(manifest: Manifest) -> ReaderEvaluation:
    return ReaderEvaluation(
        suite="s3://bucket/suite",
        suite_sha256="e",
        variant="v",
        run_id="20261101T000000Z-0",
        finished_at="2026-11-01T00:00:00+00:00",
        score_on="answer",
        reader_fingerprint=manifest["reader_fingerprint"],
        extraction=manifest["settings"]["extraction"],
        follow_ups=follow_up_texts(manifest),
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
    file = evaluation_file(nights.last().manifest, evaluated_in=evaluation.run_id)
    write_json(nights.output / file, asdict(evaluation))


def evaluated_card(nights: Nights, run_id: str) -> str:
    return (nights.output / f"runs/{run_id}/card.md").read_bytes().decode()


def test_card_shows_evaluations_of_its_reader_and_of_no_other(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    first = nights.run({"a": "one"}, {"q": "Who?"})
    assert "No evaluation of its reader was attached" in evaluated_card(nights, first["run_id"])
    evaluation = evaluation_of(first)
    attached(nights, evaluation)
    assert read_evaluations(nights.output, first) == [evaluation]
    text = evaluated_card(nights, nights.run({"a": "one"}, {"q": "Who?"})["run_id"])
    assert "by this reader:\n  - 40 readings scored on answer: score 93.0 % (88.0 to 97.0)" in text
    assert "(88.0 to 97.0); says not stated where it is 2.0 % (0 to 10.0)\n" in text
    assert "    - 4,096 tokens: 30 readings, score 93.0 % (88.0 to 97.0)\n" in text
    assert text.count(" tokens: ") == 1
    others: tuple[dict[str, Any], ...] = ({"reader": "g"}, {"extraction": "boxed"})
    for other in others:
        text = evaluated_card(nights, nights.run({"a": "one"}, {"q": "Who?"}, **other)["run_id"])
        assert "No evaluation of its reader was attached" in text
        assert "93.0 %" not in text


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({VALUE: ("t", None), EVIDENCE: ("t", None)}, {"typed", "evidence"}),
        ({VALUE: ("t", None), EVIDENCE: ("t", None), SUPPORT: ("t", None)}, {"typed", "evidence"}),
        ({}, set()),
        ({VALUE: ("t", None)}, {"typed"}),
        ({VALUE: ("t", None), EVIDENCE: ("t", 64)}, {"typed"}),
        ({VALUE: ("t", 9), EVIDENCE: ("u", None)}, set()),
    ],
)
def test_card_shows_what_follow_ups_bring_if_the_scan_asks_the_same(
    tmp_path: Path, asked: Mapping[str, tuple[str, int | None]], shown: set[str]
) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Who?"})
    past = nights.last()
    limits = {FOLLOW_UP_LIMITS[kind]: limit for kind, (_, limit) in asked.items()}
    scan: Any = {
        **past.manifest,
        "closing_texts": {kind: texts for kind, (texts, _) in asked.items()},
        "settings": {**past.manifest["settings"], "closing": {"json_tokens": None, "evidence_tokens": None} | limits},
    }
    typed = Scores(num_readings=7, score=SHARE, lengths=(), abstained=SHARE, abstained_wrongly=None)
    made = replace(
        evaluation_of(past.manifest),
        follow_ups={VALUE: "t, None", EVIDENCE: "t, None"},
        typed=typed,
        evidence_hit=Share(value=0.5, low=0.4, high=0.6),
    )
    text = card(replace(past, manifest=scan), estimates=[], evaluations=[made])
    assert "  - 40 readings scored on answer: score 93.0 %" in text, "the answer is the reader's own"
    line = "  - 7 readings of typed questions: score 93.0 % (88.0 to 97.0); says not stated where it is not 93.0 %"
    assert (line in text) == ("typed" in shown)
    assert ("  - evidence on a right sentence 50.0 % (40.0 to 60.0)\n" in text) == ("evidence" in shown)


def test_card_shows_the_latest_evaluations(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    manifest = nights.run({"a": "one"}, {"q": "Who?"})
    for day in range(1, 4 + SHOWN_EVALUATIONS):
        attached(nights, replace(evaluation_of(manifest), run_id=f"r{day}", finished_at=f"2026-11-{day:02}"))
    text = evaluated_card(nights, nights.run({"a": "one"}, {"q": "Who?"})["run_id"])
    assert text.count("by this reader:") == SHOWN_EVALUATIONS
    assert "2026-11-08" in text
    assert "2026-11-03" not in text


def test_damaged_evaluation_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    manifest = nights.run({"a": "one"}, {"q": "Who?"})
    whole: dict[str, Any] = asdict(evaluation_of(manifest))
    lacking = {
        name: {key: value for key, value in whole.items() if key != name}
        for name in ("reader_fingerprint", "extraction", "follow_ups")
    }
    texts = {name: json.dumps(value) for name, value in lacking.items()} | {"a": "{", "b": "{}", "c": "[]"}
    texts["d"] = json.dumps({**whole, "suite": ["the secret place"]})
    folder = nights.output / f"{EVALUATIONS_FOLDER}/f"
    for name, text in texts.items():
        (folder / f"{name}.json").write_bytes(text.encode())
    assert read_evaluations(nights.output, manifest) == []
    lines = [record.getMessage() for record in caplog.records if "is not an evaluation" in record.getMessage()]
    assert len(lines) == len(texts)
    assert any("extraction.json" in line and "(extraction: " in line for line in lines)
    assert not any("\n" in line or "secret" in line for line in lines)
    assert "No evaluation of its reader" in evaluated_card(nights, nights.run({"a": "one"}, {"q": "Who?"})["run_id"])
    (folder / "whole.json").write_bytes(json.dumps(whole).encode())
    assert len(read_evaluations(nights.output, manifest)) == 1
