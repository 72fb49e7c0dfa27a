"""Whether a run may write to an output, and what `runs` says of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.run.claim import claim_output, require_disjoint
from memagent_batch.run.manifest import public_settings
from memagent_batch.run.run import begin_run
from memagent_batch.run.state import read_state
from memagent_batch.run.wiring import ReaderIdentity
from tests.runs.recorded_nights import Nights, plan_of

SECRET = "hunter2-hunter2"


def settings_of(output: Path | str, **settings: Any) -> JobConfig:
    given: dict[str, Any] = {"documents": "docs", "ask": ("why?",), "output": str(output)}
    return job_of(**given | settings)


def begin(output: Location, job: JobConfig) -> None:
    """A run begins that asks for three readings, and goes no further."""
    plan = plan_of(dict.fromkeys("abc", "text"), {"q": "why?"})
    begin_run(output, job, reader=ReaderIdentity(fingerprint="f", parts={}), plan=plan)


@pytest.mark.parametrize("name", ["logs/turns/a.parquet", "input.txt"])
def test_claim_output_beside_a_log_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    killed = ("_ingest/run/a.parquet", "scratch/plan/a.parquet")
    for path in ("log/turns/a.parquet", "log/outcomes/a.parquet", "input/documents/a.parquet", *killed):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    claim_output(Location(uri=str(tmp_path)), settings_of(tmp_path / "run"))
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(OutputError, match="holds other files"):
        claim_output(Location(uri=str(tmp_path)), settings_of(tmp_path / "run"))


def assert_nested_output_is_refused(outer: Location, *, inner: str) -> None:
    job = settings_of(outer.uri)
    begin(outer, job)
    claim_output(outer, job)
    with pytest.raises(OutputError, match=f"lies inside the output {outer}, .* choose a folder outside of it"):
        claim_output(Location(uri=inner, storage_options=outer.storage_options), job)
    beside = Location(uri=f"{outer.uri}-2", storage_options=outer.storage_options)
    claim_output(beside, settings_of(beside.uri))


def test_claim_output_inside_another_output_is_refused_also_by_a_link(tmp_path: Path) -> None:
    outer = Location(uri=f"{tmp_path}/run")
    assert_nested_output_is_refused(outer, inner=f"{tmp_path}/run/answers/second")
    (tmp_path / "run/answers").mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / "run/answers")
    with pytest.raises(OutputError, match="lies inside the output"):
        claim_output(Location(uri=f"{tmp_path}/link/second"), settings_of(tmp_path / "link/second"))


@pytest.mark.s3
def test_claim_output_inside_another_output_in_a_bucket_is_refused(s3_bucket: Location) -> None:
    assert_nested_output_is_refused(s3_bucket / "lake/run", inner=f"{s3_bucket.uri}/lake/run/documents/second")


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
    with pytest.raises(OutputError, match=r"can't be (reached|written)"):
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
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    (row,) = OutputTable(output=Location(uri=str(tmp_path)), name="runs").dataset().to_table().to_pylist()
    assert SECRET not in str(row)
    assert "http://h/v1" in row["record"]
    assert '"max_num_batched_tokens": 512' in row["record"]
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
    assert state["last_sign_of_life_at"] == state["started_at"]
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


def test_partition_columns_are_carried_ones_and_those_that_the_output_began_with(nights: Nights) -> None:
    carried = {"input": {"carry_columns": ("team", "place")}}
    with pytest.raises(SettingsError, match=r"record.partition_by: 'status' is no carried column.*input.carry_columns"):
        claim_output(nights.output, settings_of(nights.output.uri, record={"partition_by": "status"}, **carried))
    nights.run({"a": "one"}, {"q": "Why?"}, carried={"team": {"a": "red"}}, record={"partition_by": ("team",)})
    asked = {"documents": "docs", "questions": "list", "ask": (), **carried}
    claim_output(nights.output, settings_of(nights.output.uri, record={"partition_by": ("team",)}, **asked))
    for others in ((), ("place",), ("team", "place")):
        with pytest.raises(OutputError, match=r"are partitioned by team, and stay so; set record.partition_by to"):
            claim_output(nights.output, settings_of(nights.output.uri, record={"partition_by": others}, **asked))
