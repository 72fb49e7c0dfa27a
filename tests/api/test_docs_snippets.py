"""The Python of the docs, run as it is over a few texts: against a chat server, or by an engine without a model."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pydantic import BaseModel

import memagent_batch as ma
from memagent_batch.apps.forget import forget
from memagent_batch.data.ingest.readers.converter import Part
from memagent_batch.data.store.location import Location
from tests import unstating_engine
from tests.api.conftest import agent_of, table_of
from tests.convert.files import mail
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply
from tests.ingest.nights import night

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8000/v1"
ELSEWHERE = {
    "how-to/plugins.md": "plugins/test_example.py",
    "how-to/collections.md": "flows/test_collections.py",
}
"""Pages whose Python other tests run."""
KEY = ("document_id", "question_id", "sample", "turn")


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_page_with_python_is_run_by_a_test() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "```python" in page.read_text()}
    here = set(re.findall(r'snippets\("([^"]+)"\)', Path(__file__).read_text()))
    assert pages == here | ELSEWHERE.keys()


def test_snippet_of_an_endpoint_reads_through_a_chat_api() -> None:
    (snippet,) = [code for code in snippets("how-to/python.md") if ADDRESS in code]
    names: dict[str, Any] = {"text": "It rained. " * 3000}
    with scripted_server(chat_reply(r"\boxed{Ann}")) as script:
        script.models = Reply(body=json.dumps({"data": [{"id": "the-served-name"}]}).encode())
        exec(snippet.replace(ADDRESS, script.base_url), names)
    assert names["answer"] == "Ann"
    assert len(script.requests) > 2
    agent, command = names["agent"], yaml.safe_load((DOCS.parent / "jobs" / "chat.yaml").read_text())
    assert agent.window_tokens == command["window_tokens"]
    assert {name: getattr(agent.policy, name) for name in command["policy"]} == command["policy"]


class Party(BaseModel):
    name: str


@pytest.fixture
def names(text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the pages take for granted, in a folder with a contract."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts/a.txt").write_text("It rained. " * 50)
    agent = agent_of(text_model).model_copy(update={"engine": unstating_engine.KIND, "window_tokens": 4000})
    questions = [ma.Question(question_id="notice", question="Is there notice?", type=ma.Bool())]
    frame = table_of({"friday.txt": "It rained. " * 50}).to_pandas()
    given = {"agent": agent, "better": agent, "questions": questions, "text": "It rained.", "frame": frame}
    return {**given, "ma": ma, "Party": Party, "parsed": bytes.decode}


def run_local(code: str, names: dict[str, Any]) -> None:
    """Runs it in this folder instead of a bucket, without Ray."""
    exec(code.replace("s3://bucket/", "").replace("agent=agent)", 'agent=agent, executor="local")'), names)


def test_page_of_typed_answers_runs(names: dict[str, Any]) -> None:
    (code,) = snippets("how-to/answers.md")
    run_local(code, names)
    assert names["run"].results().column_names[1:3] == ["price", "party"]


def test_page_of_python_runs(names: dict[str, Any]) -> None:
    agent, _, chains, reader, _, run, job = snippets("how-to/python.md")
    exec(agent, dict(names))
    run_local(reader, names)
    run_local(run.partition("run.diff")[0], names)  # one run has none before it
    assert names["run"].manifest["counts"]["ok"] == 1
    run_local("\n".join(chains.splitlines()[:2]), names)  # the others need labels and rollouts, so a model
    assert Path("nightly/pages/index.html").exists()
    with pytest.raises(SystemExit, match="2"):
        run_local(job, names)  # no test makes the folder texts/


def test_page_of_a_second_pass_runs(names: dict[str, Any]) -> None:
    ma.answer(documents="contracts", questions=names["questions"], output="out", agent=names["agent"], executor="local")
    (code,) = snippets("how-to/second-pass.md")
    code = code.replace("documents=...", "documents='contracts'").replace("questions=...", "questions=questions")
    run_local(code.replace('"confidence < 0.8"', "\"status = 'ok'\""), names)
    assert names["answers"].num_rows == 1


def test_tutorial_reads_the_tables_of_a_scan(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    ma.answer(documents=names["frame"], questions=["Why?"], output="scan", agent=names["agent"], executor="local")
    for code in snippets("tutorial/first-scan.md"):
        exec(code, names)
    assert capsys.readouterr().out.count("friday.txt") == 1
    assert len(names["turns"].fetchall()) > 2


def test_page_of_ingest_finds_copies_and_threads(names: dict[str, Any]) -> None:
    mails = {number: mail(f"Terms {number}", "see below", files=[("a.txt", b"It rained. " * 50)]) for number in (1, 2)}
    for number, message in mails.items():
        message["Message-ID"] = f"<{number}@x>"
    mails[2]["In-Reply-To"] = "<1@x>"
    mails[2].replace_header("Date", "Tue, 03 Mar 2026 10:00:00 +0000")
    for number, message in mails.items():
        Path(f"contracts/{3 - number}.eml").write_bytes(message.as_bytes())
    night("contracts", "texts", format="files")
    exec(snippets("how-to/ingest.md")[0], names)
    assert names["duplicates"]["copies"].to_pylist() == [["1.eml/1-a.txt", "2.eml/1-a.txt", "a.txt"]]
    assert names["threads"]["thread_id"].to_pylist() == ["1@x", "1@x"]
    assert names["threads"]["document_id"].to_pylist() == ["2.eml", "1.eml"]
    assert names["threads"]["family"].to_pylist() == [["2.eml", "2.eml/1-a.txt"], ["1.eml", "1.eml/1-a.txt"]]


def test_converter_of_the_page_converts(names: dict[str, Any]) -> None:
    _, code = snippets("how-to/ingest.md")
    exec(code, names)
    assert list(names["Dat"]().convert(Path("contracts/a.txt"))) == [Part(locator="text", text="It rained. " * 50)]


def test_models_of_the_page_of_tables_show_two_nights(names: dict[str, Any], tmp_path: Path) -> None:
    """DuckDB runs them over the tables as Arrow has them; the two versions of the last model are two runs."""
    call = {"questions": names["questions"], "output": "out", "agent": names["agent"], "executor": "local"}
    for document in ("a.txt", "b.txt"):
        ma.answer(documents="contracts", **call)
        (tmp_path / "contracts" / document).write_text("It snowed. " * 50)
    ma.answer(documents="contracts", **call)
    page = (DOCS / "how-to/tables.md").read_text(encoding="utf-8")
    models = re.findall(r"^```sql.*?\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    with duckdb.connect() as database:
        for name, table, run_id in (("answers", "answers", "latest"), ("earlier", "answers", "previous")):
            database.register(name, ma.table("out", table, run_id=run_id))
        database.register("runs", ma.table("out", "runs"))
        rows = [database.sql(plain_sql(model)).to_arrow_table().to_pylist() for model in models]
    values, nights, changed = rows
    assert {row["document_id"] for row in values} <= {"a.txt", "b.txt"}
    assert [row["documents_changed"] for row in sorted(nights, key=lambda row: row["finished_at"])] == [0, 1, 0]
    assert [row["document_id"] for row in changed] == ["b.txt"]


def plain_sql(model: str) -> str:
    """A model of dbt as one query: tables by their names, the version before as `earlier`."""
    model = re.sub(r"\{\{ source\('scan', 'answers'\) \}\} for version as of 12 as earlier", "earlier", model)
    model = model.replace(" for version as of 13", "")
    return re.sub(r"\{\{ source\('scan', '(\w+)'\) \}\}", r"\1", model)


def test_increments_of_the_page_of_tables_are_the_whole_tables(names: dict[str, Any]) -> None:
    """Nights that change a text, a carried column and an id, take a question and a document away, and forget one."""

    def night(*rows: tuple[str, str, int], questions: list[str]) -> None:
        lines = [json.dumps({"document_id": name, "text": text * 50, "amount": amount}) for name, text, amount in rows]
        Path("lake.jsonl").write_text("\n".join(lines))
        asked = [ma.Question(question_id=name, question=f"Is there {name}?", type=ma.Bool()) for name in questions]
        given = {"questions": asked, "agent": names["agent"], "executor": "local", "adopt_output": True}
        ma.answer(documents="lake.jsonl", output="out", input=ma.InputConfig(carry_columns="amount"), **given)

    kept, gone = ("kept", "It rained. ", 1), ("gone", "Hail. ", 1)
    night(kept, ("carried", "Snow. ", 1), gone, ("old", "Fog. ", 1), questions=["rain", "snow"])
    loaded = {name: ma.table("out", name).slice(0, 0) for name in ("answers", "memories", "results")}
    for change in (
        lambda: None,
        lambda: night(kept, ("carried", "Snow. ", 2), gone, ("new", "Fog. ", 1), questions=["rain", "snow"]),
        lambda: night(kept, ("carried", "Snow. ", 2), ("new", "Sun. ", 1), questions=["rain"]),
        lambda: forget(Location(uri="out"), ["carried"]),
        lambda: night(kept, ("new", "Wind. ", 1), questions=["rain", "hail"]),
    ):
        change()
        for code in snippets("how-to/tables.md"):
            exec(code, names)
        loaded = {name: names["updated"](name, rows) for name, rows in loaded.items()}
        for name, rows in loaded.items():
            current = ma.table("out", name)
            order = [(each, "ascending") for each in current.schema.names if each in KEY]
            rows = rows.select(current.schema.names)  # that of a question which is asked no more stays, as null
            assert rows.sort_by(order).to_pylist() == current.sort_by(order).to_pylist(), name
            pairs = {(row["document_id"], row["run_id"]) for row in current.to_pylist()}
            assert len(pairs) == len({document_id for document_id, _ in pairs}), name
