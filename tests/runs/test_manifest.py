import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.errors import NotReadError, OutputError, TooManyFailedError, TooManyRemovedError, UnreadSourcesError
from memagent_batch.runs.claim import asked_documents, asked_questions, claim_output, require_disjoint
from memagent_batch.runs.manifest import (
    RUN_FILE,
    RunRecord,
    public_settings,
    require_documents,
    require_sources_read,
    require_success,
)
from memagent_batch.runs.state import read_state
from memagent_batch.store.claims import claim_folder
from memagent_batch.store.location import Location

SECRET = "hunter2-hunter2"


def settings_of(output: Path | str, **settings: Any) -> JobConfig:
    given: dict[str, Any] = {"documents": "docs", "ask": ("why?",), "output": str(output)}
    return job_of(**given | settings)


def begin(output: Location, job: JobConfig) -> None:
    """As a run begins that asks for three readings."""
    record = RunRecord(
        run_id="",
        started_at="2026-01-01T00:00:00+00:00",
        documents=asked_documents(job),
        questions=asked_questions(job),
        asked=3,
        fingerprint="f",
        settings=public_settings(job),
    )
    claim_folder(output / "run.json", asdict(record))


@pytest.mark.parametrize("name", ["log/app.log", "logs/turns/a.parquet", "input.txt"])
def test_claim_output_beside_a_log_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    for path in ("log/turns/a.parquet", "log/outcomes/a.parquet", "input/documents/a.parquet"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    claim_output(Location(uri=str(tmp_path)), settings_of(tmp_path / "run"))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(OutputError, match="holds other files"):
        claim_output(Location(uri=str(tmp_path)), settings_of(tmp_path / "run"))


def secret_place(secret: str) -> dict[str, str]:
    place = f"https://user:{secret}@host/docs.jsonl?X-Amz-Signature={secret}"
    return {"documents": place, "questions": place}


@pytest.mark.parametrize(
    ("begun", "settings", "is_same"),
    [
        ({}, {"window_tokens": 4096, "retry_failed": True}, True),
        ({"documents": "docs/"}, {"documents": f"file://{Path('docs').absolute()}"}, True),
        (secret_place("one"), secret_place("two"), True),
        ({"documents": "lake/docs"}, {"documents": "delta://lake/docs@3"}, True),
        ({"documents": "delta://./lake/docs"}, {"documents": f"delta://{Path('lake').absolute()}/docs/"}, True),
        ({"documents": "delta://lake/docs"}, {"documents": "delta://lake/other"}, False),
        ({"documents": ["a", "b"]}, {"documents": ["a"]}, False),
        ({}, {"documents": "other docs"}, False),
        ({}, {"documents": "nosuchprotocol://docs"}, False),
        ({}, {"ask": ("what?",)}, False),
        ({}, {"questions": "list.parquet"}, False),
    ],
)
def test_claim_output_is_for_the_same_documents_and_questions_unless_it_is_adopted(
    tmp_path: Path, begun: dict[str, Any], settings: dict[str, Any], is_same: bool
) -> None:
    output = Location(uri=str(tmp_path))
    begin(output, settings_of(tmp_path, **begun))
    if not is_same:
        name = "documents" if "documents" in settings else "questions"
        with pytest.raises(OutputError, match=rf"belongs to a run over {name} [^;]*, not [^;]*; choose .*adopt_output"):
            claim_output(output, settings_of(tmp_path, **settings))
    claim_output(output, settings_of(tmp_path, adopt_output=not is_same, **settings))


def test_claim_output_that_was_copied_with_the_documents_beside_it_is_the_same(tmp_path: Path) -> None:
    begun = settings_of(tmp_path / "one/answers", documents=f"{tmp_path}/one/texts")
    begin(Location(uri=begun.output), begun)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    claim_output(
        Location(uri=f"{tmp_path}/two/answers"),
        settings_of(tmp_path / "two/answers", documents=f"{tmp_path}/two/texts"),
    )


def test_claim_output_that_was_moved_away_from_its_documents_is_the_same(tmp_path: Path) -> None:
    begun = settings_of(tmp_path / "one/answers", documents=f"{tmp_path}/one/texts")
    begin(Location(uri=begun.output), begun)
    (tmp_path / "two").mkdir()
    shutil.move(tmp_path / "one/answers", tmp_path / "two/answers")
    moved = settings_of(tmp_path / "two/answers", documents=f"{tmp_path}/one/texts")
    claim_output(Location(uri=moved.output), moved)


def test_run_record_in_a_place_that_can_not_be_written_is_the_users_to_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = Location(uri=str(tmp_path / "file" / "below"))
    with pytest.raises(OutputError, match=r"run.json can't be reached.*check the path"):
        begin(output, settings_of(output.uri))


def test_run_record_holds_no_secret(tmp_path: Path) -> None:
    job = settings_of(
        tmp_path,
        storage_options={"key": SECRET, "client_kwargs": {"password": SECRET}},
        openai={
            "api_key": SECRET,
            "headers": {"api-key": SECRET},
            "base_url": f"http://svc:{SECRET}@h/v1",
            "extra_body": {"user": SECRET},
        },
        vllm={"engine_args": {"hf_token": SECRET, "max_num_batched_tokens": 512}},
        documents=f"ftp://user:p@{SECRET}/{SECRET}@host/docs",
        questions=f"https://host/q.jsonl?X-Amz-Signature={SECRET}",
    )
    begin(Location(uri=str(tmp_path)), job)
    text = (tmp_path / RUN_FILE).read_text()
    assert SECRET not in text
    assert "http://h/v1" in text
    assert '"max_num_batched_tokens": 512' in text
    assert SECRET not in json.dumps(public_settings(job))


def test_run_record_holds_documents_and_typed_questions_as_they_were_asked() -> None:
    fields = {"signature_date": {"type": "string"}, "author": {"type": "string"}, "token_price": {"type": "number"}}
    asked = {"answer_type": "json", "schema": {"type": "object", "properties": fields}}
    public = public_settings(settings_of("run", ask=({"question": "Who?", **asked},)))
    assert public["ask"] == [{"question": "Who?", **asked}]
    assert public["documents"] == "docs"
    assert public_settings(settings_of("run", documents=["a", "b"]))["documents"] == ["a", "b"]


def test_read_state_of_a_run_that_died_at_once_says_what_was_asked_and_opens_no_log_file(tmp_path: Path) -> None:
    begin(Location(uri=str(tmp_path)), settings_of(tmp_path))
    Location(uri=f"{tmp_path}/log/keys/RUN-WRITER-000001.parquet").write_bytes(b"damaged")
    state = read_state(Location(uri=str(tmp_path)))
    assert (state["state"], state["readings_asked"], state["progress"]) == ("running or killed", 3, None)
    assert state["last_sign_of_life_at"] == state["started_at"] == "2026-01-01T00:00:00+00:00"
    assert state["last_sign_of_life_seconds_ago"] > 0
    assert state["counts"] is None


@pytest.mark.parametrize(
    ("documents", "output", "said"),
    [
        ("docs/**/*.parquet", "docs/out", "lies inside the documents"),
        ("link", "docs/out", "lies inside the documents"),
        ("s3://bucket/docs", "s3a://bucket/docs/out", "lies inside the documents"),
        ("docs", "docs-out", None),
        ("docs", "docs/_out", None),
        ("docs/*.txt", "docs/out", None),
        ("s3://bucket/docs", "s3://bucket/out", None),
    ],
)
def test_claim_output_among_the_documents_is_refused_and_beside_them_is_not(
    tmp_path: Path, documents: str, output: str, said: str | None
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "docs")
    documents, output = (uri if "://" in uri else f"{tmp_path}/{uri}" for uri in (documents, output))
    job = job_of(documents=documents, output=output, ask=("Who?",))
    if said is None:
        require_disjoint(job, output=job.output)
        return
    several = job.model_copy(update={"documents": (f"{tmp_path}/elsewhere", *job.documents)})
    for among in (job, several):
        with pytest.raises(OutputError, match=f"{said}.*choose an output beside them"):
            require_disjoint(among, output=among.output)


def manifest(*, ok: int = 0, failed: int = 0, not_read: int = 0, unread_failed: int = 0) -> Any:
    """What a verdict needs of a manifest; `unread_failed` are among the failed readings, two of a document."""

    def reasons(name: str, num: int) -> list[dict[str, Any]]:
        return [{"error_type": name, "error_message": "a message", "num_readings": num}] if num else []

    unread = {"num_unread": unread_failed, "num_unread_failed": unread_failed}
    return {
        "counts": {"asked": ok + failed + not_read, "ok": ok, "failed": failed, "not_read": not_read},
        "reasons": {"failed": reasons("E", failed), "not_read": reasons("N", not_read)},
        "unread": {**unread, "num_unread_documents": unread_failed // 2},
    }


@pytest.mark.parametrize(
    ("counts", "share"), [({"ok": 1, "failed": 9}, 1.0), ({"ok": 9, "failed": 1}, 0.1), ({"ok": 1}, 0.0)]
)
def test_success_is_a_share_of_failed_readings_that_is_allowed(counts: dict[str, int], share: float) -> None:
    require_success(manifest(**counts), max_failed_share=share)


@pytest.mark.parametrize(
    ("counts", "share"),
    [({"failed": 2}, 1.0), ({"ok": 8, "failed": 2}, 0.1), ({"ok": 8, "failed": 2, "not_read": 9}, 0.1)],
)
def test_too_many_failed_readings_are_told_with_their_reasons(counts: dict[str, int], share: float) -> None:
    with pytest.raises(TooManyFailedError, match=r"2 of \d+ readings failed.* \(2 x E: a message\).*retry_failed"):
        require_success(manifest(**counts), max_failed_share=share)


def test_answers_whose_follow_up_questions_failed_count_as_failed_readings() -> None:
    reasons = [{"error_type": "F", "error_message": "no value", "num_readings": 3}]
    unclosed: Any = {**manifest(ok=8), "num_follow_ups_failed": 3}
    unclosed["reasons"]["follow_up_failed"] = reasons
    said = r"3 of 8 readings failed, 3 of them in what is asked after the answer.*\(3 x F: no value\).*retry_failed"
    with pytest.raises(TooManyFailedError, match=said):
        require_success(unclosed, max_failed_share=0.3)
    require_success(unclosed, max_failed_share=0.4)


@pytest.mark.parametrize("counts", [{"ok": 1, "not_read": 3}, {"not_read": 3}, {"failed": 1, "not_read": 3}])
def test_readings_that_were_not_read_are_told_with_what_reads_them(counts: dict[str, int]) -> None:
    said = r"3 of \d readings were not read \(3 x N: a message\); the same command reads them"
    with pytest.raises(NotReadError, match=said):
        require_success(manifest(**counts), max_failed_share=1.0)


def changed_by(documents: dict[str, int]) -> Any:
    return {"changes": {"documents": documents}}


@pytest.mark.parametrize(("removed", "share"), [(50, 0.5), (49, 0.5), (100, 1.0), (0, 0.0)])
def test_documents_that_are_gone_are_allowed_up_to_a_share(removed: int, share: float) -> None:
    changes = {"added": 30, "changed": 10, "removed": removed, "unchanged": 90 - removed}
    require_documents(changed_by(changes), RunConfig(output="out", max_removed_share=share))


def test_too_many_documents_that_are_gone_are_told() -> None:
    changes = {"added": 1, "changed": 0, "removed": 200, "unchanged": 30}
    with pytest.raises(TooManyRemovedError, match=r"200 of the 230 documents of the last run are gone.*memagent diff"):
        require_documents(changed_by(changes), RunConfig(output="out"))
    require_documents(changed_by(changes), RunConfig(output="out", adopt_output=True))
    require_documents(changed_by(changes) | {"again": {}}, RunConfig(output="out"))


def test_sources_that_were_not_read_are_no_failures_and_end_the_command_in_their_own_way() -> None:
    unread = manifest(failed=4, unread_failed=4)
    require_success(unread, max_failed_share=0.0)
    with pytest.raises(UnreadSourcesError, match="2 documents were not read to the end, 4 answers not_read"):
        require_sources_read(unread["unread"])
    require_sources_read(manifest(ok=1, failed=1)["unread"])
    require_sources_read({"num_unread": 3, "num_unread_documents": 0, "num_unread_failed": 0})
