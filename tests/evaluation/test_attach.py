"""Attaching an evaluation to the output of a scan, without Ray: a suite that `Nights` has read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.errors import OutputError
from memagent_batch.evaluation.attach import attach
from memagent_batch.evaluation.record import Evaluation, VariantRecord, write_evaluation
from memagent_batch.evaluation.scoring import read_answers, score_answers
from memagent_batch.evaluation.suite import SUITE_QUESTIONS
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.runs.estimates import read_evaluations
from memagent_batch.runs.manifest import Manifest, require_manifest
from tests.runs.recorded_nights import FAILS, Nights

TEXTS: dict[str, str | None] = {"a": "one", "b": "two", "c": FAILS}
ASKED = [
    {"question_id": "q", "document_id": name, "question": "Who?", "references": ["one"], "task": "t"}
    | {"length_tokens": 512, "metric": "sub_em", "is_absent": False}
    for name in TEXTS
]


TYPED: dict[str, Any] = {
    "question_id": "typed",
    "document_id": "b",
    "question": "Two?",
    "references": ["yes"],
    "task": "t",
}
TYPED |= {"length_tokens": None, "metric": "value", "is_absent": False, "answer_type": "bool"}


def evaluated(source: Location, *readers: str, asked: Sequence[Mapping[str, Any]] = ASKED) -> Location:
    """An evaluation with a variant for each reader fingerprint."""
    variants = []
    for reader in readers:
        run = Nights(source / f"runs/{reader}")
        manifest = run.run(TEXTS, {"q": "Who?"}, reader=reader)
        questions = pa.Table.from_pylist([*asked], schema=SUITE_QUESTIONS)
        scores = score_answers(questions, read_answers(run.output), variant=reader, samples=1)
        (source / f"scores/{reader}.parquet").write_bytes(parquet_bytes(scores))
        variants.append(variant_of(reader, manifest))
    write_evaluation(source, Evaluation(suite="file:///suite", suite_folder="suite", variants=tuple(variants)))
    return source


def variant_of(name: str, manifest: Manifest) -> VariantRecord:
    return VariantRecord(
        name=name,
        run=f"runs/{name}",
        scores=f"scores/{name}.parquet",
        model="m",
        policy="overwrite",
        knobs={},
        seconds=1.0,
        reader_fingerprint=name,
        run_id=manifest["run_id"],
        suite_sha256="e",
        finished_at=manifest["finished_at"],
    )


def test_attach_takes_the_variant_that_the_scan_was_read_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(Location(uri=str(tmp_path / "eval")), "other", "f")
    scan = Nights(Location(uri=str(tmp_path / "scan")))
    scan.run({"x": "one"}, {"q": "Why?"})
    assert cli.main(["evaluate", "attach", str(tmp_path / "eval"), "--to", str(tmp_path / "scan")]) == 0
    (row,) = json.loads(capsys.readouterr().out)["attached"]
    assert (row["variant"], row["score"]) == ("f", pytest.approx(1 / 3))
    (found,) = read_evaluations(scan.output, scan.last().manifest)
    assert found.free is not None
    assert (found.free.num_readings, found.free.lengths[0].length_tokens, found.free.abstained) == (3, 512, None)
    assert (found.typed, found.evidence_hit) == (None, None)
    before = (tmp_path / "scan" / row["file"]).read_bytes()
    assert attach(Location(uri=str(tmp_path / "eval")), output=scan.output) == [row]
    assert (tmp_path / "scan" / row["file"]).read_bytes() == before


def test_attach_scores_typed_questions_apart(tmp_path: Path) -> None:
    source = evaluated(Location(uri=str(tmp_path / "eval")), "f", asked=[*ASKED, TYPED])
    scan = Nights(Location(uri=str(tmp_path / "scan")))
    scan.run({"x": "one"}, {"q": "Why?"})
    (row,) = attach(source, output=scan.output)
    (found,) = read_evaluations(scan.output, scan.last().manifest)
    assert found.free is not None
    assert found.typed is not None
    assert found.free.num_readings == 3
    assert found.free.score.value == pytest.approx(1 / 3)
    assert (found.typed.num_readings, found.typed.score.value) == (1, 0.0)
    assert row["score"] == pytest.approx(1 / 4)


def test_attach_refuses_an_evaluation_of_other_readers_and_names_what_differs(tmp_path: Path) -> None:
    source = evaluated(Location(uri=str(tmp_path / "eval")), "other")
    scan = Nights(Location(uri=str(tmp_path / "scan")))
    with pytest.raises(OutputError, match="no run has finished"):
        attach(source, output=scan.output)
    scan.run({"x": "one"}, {"q": "Why?"}, extraction="boxed")
    with pytest.raises(OutputError, match=r"no reader of .* is the one of .*: 'other' \(extraction\)"):
        attach(source, output=scan.output)
    assert read_evaluations(scan.output, scan.last().manifest) == []


def test_attach_refuses_a_variant_that_was_read_again_and_not_scored(tmp_path: Path) -> None:
    source = evaluated(Location(uri=str(tmp_path / "eval")), "f")
    scan = Nights(Location(uri=str(tmp_path / "scan")))
    scan.run({"x": "one"}, {"q": "Why?"})
    Nights(source / "runs/f").run(TEXTS, {"q": "Who?"})
    with pytest.raises(OutputError, match="'f' was read again and not scored since"):
        attach(source, output=scan.output)


@pytest.mark.s3
def test_attach_works_in_a_bucket(s3_bucket: Location) -> None:
    source, scan = evaluated(s3_bucket / "eval", "f"), Nights(s3_bucket / "scan")
    manifest = scan.run({"x": "one"}, {"q": "Why?"})
    (row,) = attach(source, output=scan.output)
    (found,) = read_evaluations(scan.output, scan.last().manifest)
    assert (row["variant"], found.run_id) == ("f", source_run(source))
    card = scan.output / f"runs/{manifest['run_id']}/card.md"
    assert b"by this reader" not in card.read_bytes(), "it is sealed"
    again = scan.run({"x": "one", "y": "two"}, {"q": "Why?"})
    assert b"by this reader:\n  - 3 readings" in (scan.output / f"runs/{again['run_id']}/card.md").read_bytes()


def source_run(source: Location) -> str:
    return require_manifest(source / "runs/f")["run_id"]
