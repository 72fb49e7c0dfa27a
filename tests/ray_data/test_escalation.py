"""A second look at doubtful readings: real Ray, an engine without a model, two policies."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import BoundReachedError, SettingsError
from memagent_batch.files.location import Location
from memagent_batch.flows.answer import answer
from memagent_batch.flows.check import check
from memagent_batch.flows.collect import collect
from memagent_batch.flows.plan import SecondLookPrice, plan_checked
from memagent_batch.log.question_list import read_asked
from memagent_batch.runs.escalation.thresholds import THRESHOLD_FORMAT, write_threshold
from memagent_batch.runs.history.comparison import compare_runs
from memagent_batch.runs.history.history import find_run
from memagent_batch.runs.partial import write_partial
from memagent_batch.runs.state import read_state
from memagent_batch.runs.tables.table_files import read_tables
from tests.audit.scan import verify_here

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

TEXTS: dict[str, str | None] = {
    "short": "Ann signed it.",
    "long": "The deed was simulated in Rome. " * 30,
    "twin": "Ann signed it.",
    "none": None,
}
READ = ("short", "long", "twin")
ASK: list[dict[str, Any]] = [
    {"question_id": "free", "question": "Who?"},
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
    {
        "question_id": "risk",
        "question": "Which risk?",
        "answer_type": "label",
        "labels": ["low", "high", "none", "mid"],
    },
]
"""The simulated engine is as sure of each entry of a menu: 1/3 for a bool, 1/5 for four labels and `not stated`."""
ESCALATE = {"when": ["low_confidence"], "confidence_below": 0.25, "to": {"policy": {"kind": "overwrite"}}}
AGAIN = {"when": ["answer"], "answers": [" SIMULATED"], "to": {"policy": {"kind": "reread"}}}
NONE = dict.fromkeys(("escalated", "answered", "failed", "not_read", "needs_review"), 0)
OWN = {"run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rows = [{"document_id": name, "text": text} for name, text in TEXTS.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def job(documents: Path, model: str, output: Path, **knobs: Any) -> JobConfig:
    policy = {"chunk_tokens": 60, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}
    given: dict[str, Any] = {
        "documents": str(documents),
        "ask": ASK,
        "output": str(output),
        "engine": "simulated",
        "model": model,
        "window_tokens": 1500,
        "policy": {"kind": "truncate", **policy},
        "closing": {"json_tokens": 64},
        "log": {"flush_seconds": 0.1},
    }
    return job_of(**given | knobs)


def rows_of(output: Path, manifest: Any, name: str = "answers") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_tables(Location(uri=str(output)), manifest["files"][name]).to_pylist()
    return rows


def by_id(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["document_id"], row["question_id"]): row for row in rows}


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str({name: value for name, value in row.items() if name not in OWN}) for row in rows)


def planned_again(settings: JobConfig) -> SecondLookPrice:
    """What `memagent plan` says of the second reader."""
    price = plan_checked(check(settings))["second_look"]
    assert price is not None
    return price


def turns_of(output: Path, run_id: str) -> Counter[str]:
    rows = pq.read_table(output / "log" / "turns", columns=["run_id", "kind"]).to_pylist()
    return Counter(row["kind"] for row in rows if row["run_id"] == run_id)


def test_doubtful_readings_alone_are_read_again_and_the_row_says_why(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    output = tmp_path / "scan"
    plain = answer(job(documents, text_model, output))
    before = by_id(rows_of(output, plain))
    assert {row["tier"] for row in before.values()} == {None}
    settings = job(documents, text_model, output, escalate=ESCALATE)
    planned = planned_again(settings)
    price = planned["reader"]
    assert price is not None
    assert (planned["doubtful"], price["readings_to_do"], planned["last_share"]) == (2, 2, None), "twins have one"
    manifest = answer(settings)
    verified = verify_here(Location(uri=str(output)), job=settings, reread=1_000)
    assert (verified.findings, verified.unchecked) == ([], [])
    again = verified.reread
    assert again is not None
    assert again.num_asked == again.num_drawn > 0
    assert again.num_of_second_reader == pq.read_table(output / "log/turns").num_rows - again.num_drawn > 0
    rows = by_id(rows_of(output, manifest))
    assert rows.keys() == before.keys()
    second = manifest["second_look"]
    for (document, question), row in rows.items():
        old = before[document, question]
        if question != "risk" or document == "none":
            assert row == {
                **old,
                "tier": 1,
                "needs_review": False,
                "finished_at": row["finished_at"],
                "run_id": row["run_id"],
            }
            continue
        assert (row["tier"], row["escalated_because"], row["escalation_error"]) == (2, "low_confidence", None)
        assert row["reader_fingerprint"] == second["reader_fingerprint"] != old["reader_fingerprint"]
        assert row["num_turns"] > old["num_turns"] + 1
        assert (row["value_label"], row["status"]) == ("low", "ok")
    assert second["counts"] == {**NONE, "escalated": 3, "answered": 3}
    assert (second["share"], second["because"]) == (0.25, {"low_confidence": 3})
    assert manifest["counts"]["answers_rows"] == manifest["counts"]["asked"] == len(rows)
    assert price["turns_at_most"] >= turns_of(output, manifest["run_id"]).total() - 2
    kinds = Counter(
        row["kind"]
        for row in rows_of(output, manifest, "memories")
        if (row["document_id"], row["question_id"]) == ("long", "risk")
    )
    assert kinds["update"] > 1
    assert not kinds["direct"]
    state = read_state(Location(uri=str(output)))["second_look"]
    assert state is not None
    assert (state["outcomes_ok"], state["counts"]) == (2, second["counts"])
    _require_quiet_night(settings, output, manifest)


def tokens_of(output: Path, *, reader_fingerprint: str | None = None) -> list[int]:
    """Tokens of the turns of one reader, or of all."""
    columns = ["reader_fingerprint", "num_prompt_tokens", "token_ids", "held_from"]
    rows = pq.read_table(output / "log" / "turns", columns=columns).to_pylist()
    return [
        row["num_prompt_tokens"] + len(row["token_ids"])
        for row in rows
        if row["held_from"] is None and reader_fingerprint in (None, row["reader_fingerprint"])
    ]


def _require_quiet_night(settings: JobConfig, output: Path, manifest: Any) -> None:
    again = answer(settings)
    assert not turns_of(output, again["run_id"])
    assert again["files"] == manifest["files"]
    assert again["second_look"] == manifest["second_look"]
    assert again["changes"]["readings"]["read"] == 0
    assert planned_again(settings)["last_share"] == manifest["second_look"]["share"]


@pytest.mark.chaos
def test_fresh_run_ends_as_one_that_got_its_second_look_later_and_diff_names_the_tier(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    shared = {"kind": "shared", "chunk_tokens": 60, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}
    to = {"policy": {"kind": "truncate"}, "extraction": "raw"}  # takes the box for a part of the answer
    knobs: dict[str, Any] = {"policy": shared, "escalate": {**ESCALATE, "to": to}}
    answer(job(documents, text_model, tmp_path / "later", policy=shared))
    later = answer(job(documents, text_model, tmp_path / "later", **knobs))
    fresh = answer(job(documents, text_model, tmp_path / "fresh", **knobs))
    for name in ("answers", "memories"):
        rows = rows_of(tmp_path / "later", later, name)
        assert comparable(rows) == comparable(rows_of(tmp_path / "fresh", fresh, name))
    place = Location(uri=str(tmp_path / "later"))
    [changed] = compare_runs(find_run(place, "previous"), find_run(place, "latest"))
    rows = changed.to_pylist()
    assert {row["document_id"]: row["why"] for row in rows} == {name: ["tier", "extraction"] for name in READ}
    assert {(row["question_id"], row["answer_before"]) for row in rows} == {("risk", "simulated")}
    assert {row["answer_after"] for row in rows} == {"\\boxed{simulated}"}
    values = {key: row["value"] for key, row in by_id(rows_of(tmp_path / "later", later)).items()}
    assert all(row["value_after"] == values[row["document_id"], row["question_id"]] is not None for row in rows)


def test_second_reader_that_fails_leaves_the_first_answer_and_says_so(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    long = {"question_id": "risk", "question": "Which risk " * 4, "answer_type": "label", "labels": list("abcd")}
    escalate = ma.EscalateConfig(**{**ESCALATE, "to": {"policy": {"question_tokens": 8}}})
    policy = ma.Truncate(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    agent = ma.Agent(model=text_model, engine="simulated", window_tokens=1500, policy=policy)
    run = ma.answer(
        documents=documents,
        questions=[long],
        output=tmp_path / "scan",
        agent=agent,
        closing=ma.ClosingConfig(json_tokens=64),
        escalate=escalate,
    )
    rows = {row["document_id"]: row for row in run.answers().to_pylist()}
    for name in READ:
        row = rows[name]
        assert (row["status"], row["answer"], row["tier"]) == ("ok", "simulated", 1)
        assert row["escalated_because"] == "low_confidence"
        assert row["escalation_error"].startswith("QuestionTooLongError: ")
    assert run.manifest["second_look"]["counts"] == {
        "escalated": 3,
        "answered": 0,
        "failed": 3,
        "not_read": 0,
        "needs_review": 3,
    }


def test_person_looks_where_a_threshold_of_labels_says_so_and_no_reader_is_left(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    output, endless = Location(uri=str(tmp_path / "scan")), "Is it signed? " * 40
    ask = [*ASK, {"question_id": "endless", "question": endless, "answer_type": "bool"}]
    settings = job(documents, text_model, tmp_path / "scan", ask=ask, escalate={"target": {"recall": 0.9}})
    with pytest.raises(SettingsError, match="no threshold was learnt"):
        check(settings)
    first = answer(job(documents, text_model, tmp_path / "scan", ask=ask))
    asked = read_asked(output, run_id=first["run_id"]).to_pylist()
    closings = {row["question_id"]: row["closing_fingerprint"] for row in asked}
    learnt: Any = {"question_id": "endless", "question_hash": text_hash(endless), "up_to": 0.2}
    learnt |= {"format": THRESHOLD_FORMAT, "recall": 0.9, "delta": 0.05}
    learnt |= {"reader_fingerprint": first["reader_fingerprint"], "closing_fingerprint": closings["endless"]}
    write_threshold(output, learnt)
    with pytest.raises(SettingsError, match=r"question 'signed': no threshold was learnt"):
        check(settings)
    signed = learnt | {"question_id": "signed", "question_hash": text_hash("Is it signed?")}
    write_threshold(output, signed | {"closing_fingerprint": closings["risk"]})
    with pytest.raises(SettingsError, match=r"question 'signed': its threshold was learnt for another form of its"):
        check(settings)
    write_threshold(output, signed)
    risk = {"question_id": "risk", "question_hash": text_hash("Which risk?"), "closing_fingerprint": closings["risk"]}
    write_threshold(output, learnt | risk)
    write_threshold(output, learnt | {"question_hash": "gone", "reader_fingerprint": "of a question not asked"})
    manifest = answer(settings)
    assert manifest["changes"]["readings"]["read"] == 0
    assert manifest["second_look"]["counts"] == {**NONE, "escalated": 3, "needs_review": 3}
    learnt_by = {"recall": 0.9, "delta": 0.05, "up_to": {"signed": 0.2, "endless": 0.2}}
    assert manifest["second_look"]["target"] == learnt_by
    assert manifest["second_look"]["reader_fingerprint"] is None
    for (document, question), row in by_id(rows_of(tmp_path / "scan", manifest)).items():
        is_doubtful = question == "endless" and document != "none"  # it failed; `risk` asks for no yes or no
        because = "target" if is_doubtful else None
        assert (row["tier"], row["needs_review"], row["escalated_because"]) == (1, is_doubtful, because)
    planned = planned_again(settings)
    assert (planned["doubtful"], planned["reader"]) == (2, None), "twins have one"
    write_threshold(output, learnt | {"recall": 0.8})
    with pytest.raises(SettingsError, match=r"question 'endless': its threshold was learnt for recall 0.8"):
        check(settings)


def test_both_readers_keep_to_one_bound_and_going_on_ends_as_without_one(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    knobs: dict[str, Any] = {"ask": ["Who?"], "escalate": AGAIN, "pool": {"readings_in_flight": 2}}
    whole = answer(job(documents, text_model, tmp_path / "whole", **knobs))
    first = sum(tokens_of(tmp_path / "whole", reader_fingerprint=whole["reader_fingerprint"]))
    second = sum(tokens_of(tmp_path / "whole", reader_fingerprint=whole["second_look"]["reader_fingerprint"]))
    assert whole["second_look"]["because"] == {"answer": len(READ)}
    assert {row["tier"] for row in rows_of(tmp_path / "whole", whole) if row["status"] == "ok"} == {2}
    most = first + second * 3 // 4
    bounded = job(documents, text_model, tmp_path / "scan", **knobs, max_tokens=most)
    with pytest.raises(BoundReachedError, match="max_tokens"):
        answer(bounded)
    taken = sum(tokens_of(tmp_path / "scan"))
    assert first < taken <= most
    state = read_state(Location(uri=str(tmp_path / "scan")))
    assert state["state"] == "stopped"
    partial = write_partial(Location(uri=str(tmp_path / "scan")))
    assert partial["readings_shown"] == len(TEXTS)
    manifest = answer(bounded)
    assert manifest["second_look"] == whole["second_look"]
    for name in ("answers", "memories"):
        shown, expected = rows_of(tmp_path / "scan", manifest, name), rows_of(tmp_path / "whole", whole, name)
        assert comparable(shown) == comparable(expected)
    assert sum(tokens_of(tmp_path / "scan")) == first + second, "no turn was asked twice"
    spent = manifest["spent"]
    assert spent["num_prompt_tokens"] + spent["num_completion_tokens"] == first + second - taken


def test_partial_shows_first_answers_where_only_the_second_reader_has_begun_to_read(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    answer(job(documents, text_model, tmp_path / "scan", ask=["Who?"]))
    with pytest.raises(BoundReachedError, match="max_tokens"):
        answer(job(documents, text_model, tmp_path / "scan", ask=["Who?"], escalate=AGAIN, max_tokens=1))
    partial = write_partial(Location(uri=str(tmp_path / "scan")))
    assert partial["readings_shown"] == len(TEXTS)


@pytest.mark.chaos
def test_grown_document_is_read_on_by_the_second_reader_too_and_a_limit_leaves_out_the_same(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    output = tmp_path / "scan"
    settings = job(documents, text_model, output, ask=["Who?"], escalate=AGAIN)
    before = answer(settings)
    rows = [{"document_id": name, "text": text} for name, text in TEXTS.items() if text and name != "twin"]
    rows[1]["text"] = f"{rows[1]['text']}It was signed in May. "
    pq.write_table(pa.Table.from_pylist(rows), documents)
    limited = answer(settings.model_copy(update={"limit": 1}))
    assert limited["sample"]["documents"] == 2
    assert limited["counts"]["asked"] == 1
    grown = answer(settings)
    assert grown["changes"]["documents"]["removed"] == 0, "the limited run has seen all documents"
    held = pq.read_table(output / "log" / "turns", columns=["reader_fingerprint", "held_from"]).to_pylist()
    again = [row for row in held if row["reader_fingerprint"] == before["second_look"]["reader_fingerprint"]]
    assert sum(row["held_from"] is not None for row in again) > 1
    assert grown["second_look"]["counts"] == {
        "escalated": 2,
        "answered": 2,
        "failed": 0,
        "not_read": 0,
        "needs_review": 0,
    }


@pytest.mark.parametrize(
    ("escalate", "problem"),
    [
        ({"when": ["failed"], "to": {"policy": {"kid": "x"}}}, r"escalate.to.policy.kid: there is no such knob"),
        ({"when": ["failed"], "to": {"policy": {"kind": "truncate"}}}, "the second reader equals the first"),
        ({"when": ["failed"], "to": {"policy": {"kind": "shared"}}}, r"escalate.to: policy.kind: 'shared' reads"),
        ({"when": ["failed"], "to": {"policy": {"chunk_tokens": 9000}}}, r"escalate.to: window_tokens"),
        ({"when": ["failed"], "to": {"sampling": {"samples": 2}}}, r"escalate.to.sampling.samples is 2"),
        ({"when": ["weak_support"], "to": {"policy": {"kind": "overwrite"}}}, "needs closing.evidence and"),
    ],
)
def test_second_reader_that_cannot_work_is_refused_before_the_run(
    escalate: dict[str, Any], problem: str, documents: Path, text_model: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=problem):
        check(job(documents, text_model, tmp_path / "out", escalate=escalate))
    assert not (tmp_path / "out").exists()


def test_reasons_of_values_need_typed_questions_and_collect_takes_no_second_reader(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="no question has an answer_type"):
        check(job(documents, text_model, tmp_path / "out", ask=["Who?"], escalate=ESCALATE))
    with pytest.raises(SettingsError, match="leave it out of `collect`"):
        collect(job(documents, text_model, tmp_path / "out", escalate=ESCALATE))
