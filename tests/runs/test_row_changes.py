"""Which rows a night writes: those that change are new, all others stay as they are, whoever reads the tables."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from memagent_batch.cli.settings import job_of
from memagent_batch.data.documents.document_index import sample_documents
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run import parts
from memagent_batch.run.commits import end_commits
from memagent_batch.run.comparison import compare_runs
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import find_run, latest_number
from tests import prompt_dependent_engine
from tests.jobs import small_settings
from tests.runs.recorded_nights import FAILS, Killed, Nights, dying_at
from tests.tables import comparable, table_rows

Q = {"q": "Who?"}
DOCUMENTS: dict[str, str | None] = {"a": "fox", "b": "dog", "c": FAILS, "d": None}
TEAMS = {"a": "red", "b": "blue", "c": "", "d": None}
TABLES = ("answers", "memories", "results")
Rows = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """A scan whose files hold the rows of one document each."""
    monkeypatch.setattr(parts, "PART_READINGS", 1)
    return Nights(Location(uri=str(tmp_path / "run")))


def by_key(rows: list[dict[str, Any]]) -> Rows:
    """Rows by what identifies them in their table."""
    keys = ("document_id", "question_id", "sample", "turn")
    keyed = {tuple(row[name] for name in keys if name in row): stated(row) for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def stated(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nulls, which an additional column has in older rows."""
    return {name: value for name, value in row.items() if value is not None and not name.startswith("_")}


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows and how often each is there, without what a feed says of its own."""
    return Counter(json.dumps(stated(row), default=str, sort_keys=True) for row in rows)


def read_feed(table: OutputTable, *, since: int) -> Counter[str]:
    """What the change data feed adds to the rows of a version, and what it takes from them."""
    if table.version() == since:
        return Counter()
    changes = pa.table(table.open().load_cdf(starting_version=since + 1)).to_pylist()
    added = counted([row for row in changes if row["_change_type"] == "insert"])
    added.subtract(counted([row for row in changes if row["_change_type"] == "delete"]))
    return added


class Scan:
    """Nights of a real job over a file of documents and one of questions, whose every word depends on its prompt."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder
        places = {"documents": f"{folder}/documents.jsonl", "questions": f"{folder}/questions.jsonl"}
        self.settings = small_settings(folder, model, engine=prompt_dependent_engine.KIND, **places)
        self.output = str(folder / "run")

    def run(self, documents: Mapping[str, tuple[str, str | None]], questions: set[str], **settings: Any) -> Any:
        """One night; documents have a text and a team; question `typed` asks for a number."""
        rows = [{"document_id": name, "text": text, "team": team} for name, (text, team) in documents.items()]
        asked = [{"question_id": name, "question": f"What of {name}?"} for name in sorted(questions)]
        asked = [each | ({"answer_type": "number"} if each["question_id"] == "typed" else {}) for each in asked]
        for name, lines in (("documents", rows), ("questions", asked)):
            (self.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        settings = {"input": {"carry_columns": ("team",)}, "record": {"partition_by": ("team",)}, **settings}
        return answer(job_of(**self.settings | settings, allow_code=True))

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of the last run's tables."""
        names = find_run(Location(uri=self.output)).manifest["table_versions"]
        return {name: table_rows(self.output, name) if name in names else [] for name in TABLES}


def test_results_have_a_row_for_each_document_in_answers_also_a_missing_one_that_a_question_is_bound_to(
    text_model: str, tmp_path: Path
) -> None:
    ask = [
        {"question_id": "typed", "question": "How many?", "answer_type": "number", "document_id": document_id}
        for document_id in ("a", "gone")
    ]
    rows = [{"document_id": name, "text": f"the fox of {name}"} for name in ("a", "unasked")]
    (tmp_path / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output, places = str(tmp_path / "run"), {"documents": f"{tmp_path}/documents.jsonl", "ask": ask}
    settings = small_settings(tmp_path, text_model, engine=prompt_dependent_engine.KIND, output=output, **places)
    answer(job_of(**settings, allow_code=True))
    ids = {name: {row["document_id"] for row in table_rows(output, name)} for name in ("answers", "results")}
    assert ids["results"] == ids["answers"] == {"a", "gone"}


NIGHT = st.fixed_dictionaries(
    {
        "documents": st.dictionaries(
            st.sampled_from("abcd"),
            st.tuples(st.sampled_from(["the fox", "a dog"]), st.sampled_from(["red", "x=/%20'ü", None])),
            min_size=1,
        ),
        "questions": st.sets(st.sampled_from(["q", "r", "typed"]), min_size=1),
        "limit": st.sampled_from([None, None, None, 1, 2]),
        "killed_at": st.sampled_from(["", "", "", "answers", "memories"]),
    }
)


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(nights=st.lists(NIGHT, min_size=2, max_size=5))
def test_nights_leave_the_rows_that_plain_dicts_would_hold(text_model: str, nights: list[dict[str, Any]]) -> None:
    """Documents come, change, are renamed and go, questions too; limits leave some out, and kills stop nights."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as small:
        small.setattr(parts, "PART_READINGS", 2)
        scan, model = Scan(Path(folder), text_model), Model()
        for number, night in enumerate(nights):
            killed_at = night["killed_at"] if number else ""
            if number:  # a night that was killed while it committed is ended by the next
                end_commits(Location(uri=scan.output), latest_number(Location(uri=scan.output), writer="memagent"))
            before = scan.tables() if number else {name: [] for name in TABLES}
            arguments = {"documents": night["documents"], "questions": night["questions"], "limit": night["limit"]}
            versions = {name: OutputTable(output=Location(uri=scan.output), name=name) for name in TABLES}
            since = {name: table.version() or 0 for name, table in versions.items()}
            try:
                with dying_at(killed_at) if killed_at else nullcontext():
                    manifest = scan.run(**arguments)
            except Killed:
                assert scan.tables() == before
                model.run(**arguments)
                continue
            tables = scan.tables()
            model.run(**arguments)
            model.check(tables)
            check_run_ids(before, tables, run_id=manifest["run_id"])
            assert manifest["changes"]["answers"] == num_changed(before["answers"], tables["answers"])
            for name, table in versions.items():
                has_feed = {*map(tuple, before[name])} >= {*map(tuple, tables[name])}  # of the same columns
                if has_feed and name in manifest["table_versions"]:
                    fed = counted(before[name])
                    fed.update(read_feed(table, since=since[name]))
                    assert +fed == counted(tables[name]), name


class Model:
    """The tables as plain dicts."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[str, str | None]] = {}
        """Text and team of each document and question."""
        self.results: dict[str, str | None] = {}
        self.answers: dict[tuple[str, str], str] = {}
        """What the model says of a text and a question, whenever it is asked."""

    def run(self, documents: Mapping[str, tuple[str, str | None]], questions: set[str], limit: int | None) -> None:
        inside = taken(documents, limit=limit)
        left = {name for name in documents if name not in inside}
        self.rows = {key: row for key, row in self.rows.items() if key[0] in left}
        self.rows |= {(name, question): documents[name] for name in inside for question in questions}
        self.results = {name: team for name, team in self.results.items() if name in left}
        self.results |= {name: documents[name][1] for name in inside if "typed" in questions}

    def check(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        answers = {(row["document_id"], row["question_id"]): row for row in tables["answers"]}
        assert len(answers) == len(tables["answers"])
        shown = {key: (row["document_hash"], row["team"]) for key, row in answers.items()}
        assert shown == {key: (text_hash(text), team) for key, (text, team) in self.rows.items()}
        for (name, question), row in answers.items():
            said = self.answers.setdefault((self.rows[name, question][0], question), row["answer"])
            assert row["answer"] == said
        memories = {(row["document_id"], row["question_id"], row["document_hash"]) for row in tables["memories"]}
        assert memories == {(*key, text_hash(text)) for key, (text, _) in self.rows.items()}
        by_key(tables["memories"])
        assert {row["document_id"]: row["team"] for row in tables["results"]} == self.results
        assert len(tables["results"]) == len(self.results)


def taken(documents: Mapping[str, tuple[str, str | None]], *, limit: int | None) -> set[str]:
    hashes = [text_hash(text) for text, _ in documents.values()]
    index = pa.table({"document_id": list(documents), "document_hash": hashes})
    return set(sample_documents(index, limit=limit, seed=0).taken["document_id"].to_pylist())


def check_run_ids(before: Mapping[str, Any], after: Mapping[str, Any], *, run_id: str) -> None:
    """A row without the run's id is as it was."""
    for name in TABLES:
        earlier, later = by_key(before[name]), by_key(after[name])
        others = {key: row for key, row in later.items() if row["run_id"] != run_id}
        columns = {column for row in after[name][:1] for column in row}  # that of a question may be gone
        was = {key: {column: row[column] for column in row if column in columns} for key, row in earlier.items()}
        assert others == {key: was.get(key) for key in others}


def num_changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    columns = ("status", "answer", "value", "value_status")
    shown = [
        {key: [row.get(name) for name in columns] for key, row in by_key(rows).items()} for rows in (before, after)
    ]
    return sum(shown[0].get(key) != shown[1].get(key) for key in shown[0].keys() | shown[1].keys())


def test_night_without_any_change_adds_one_row_of_runs_and_no_other_file(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, Q)
    files = {path: Path(path).stat().st_ino for path in nights.output.files() if "/runs/" not in path}
    second = nights.run(DOCUMENTS, Q)
    assert {path: Path(path).stat().st_ino for path in nights.output.files() if "/runs/" not in path} == files
    own = {"run_id", "started_at", "finished_at", "seconds", "changes", "digest", "digest_before", "spent"}
    assert {name: second[name] for name in second if name not in own} == {  # type: ignore[literal-required]
        name: first[name]  # type: ignore[literal-required]
        for name in first
        if name not in own
    }
    assert second["changes"]["since"] == first["run_id"]
    assert second["changes"]["readings"] == {"read": 0, "kept": 3, "unreadable": 1, "not_read": 0}
    assert len(nights.table("runs")) == 2
    assert list(compare_runs(find_run(nights.output, "previous"), find_run(nights.output))) == []


@pytest.mark.parametrize(
    ("change", "rewritten"),
    [
        ({"documents": {"z": "fox", "b": "lynx", "c": FAILS, "d": None, "e": "dog"}}, "bez"),
        ({"carried": {"team": {**TEAMS, "a": "green"}}}, "a"),
        ({"retried": True}, "c"),
        ({"documents": {"a": "ox", "b": "ox"}, "outside": {"c": FAILS}}, "ab"),
        ({"questions": {"other": "Who?"}}, "abcd"),
        ({"extraction": "raw"}, "abcd"),
        ({"reader": "another"}, "abcd"),
        ({"carried": {"team": TEAMS, "place": {"a": "here"}}}, "abcd"),
    ],
)
def test_night_writes_the_rows_that_change_and_leaves_the_files_of_others(
    nights: Nights, change: dict[str, Any], rewritten: str
) -> None:
    settings: dict[str, Any] = {"documents": DOCUMENTS, "questions": Q, "carried": {"team": TEAMS}}
    nights.run(**settings)
    rows, files = {name: nights.table(name) for name in TABLES[:2]}, nights.files("answers")
    run_id = nights.run(**settings | change)["run_id"]
    fresh = Nights(Location(uri=f"{nights.output.uri}-fresh"))
    fresh.run(**settings | change)
    inside = settings | change
    for name in TABLES[:2]:
        later = [row for row in nights.table(name) if row["document_id"] in inside["documents"]]
        assert comparable(later) == comparable(fresh.table(name))
        assert {row["document_id"] for row in later if row["run_id"] == run_id} <= set(rewritten)
        kept = [row for row in nights.table(name) if row["run_id"] != run_id]
        assert kept == [row for row in rows[name] if row in kept]
    assert {row["document_id"] for row in nights.table("answers") if row["run_id"] == run_id} == set(rewritten)
    assert len(files & nights.files("answers")) == len(
        set("abcd") & {row["document_id"] for row in kept_rows(nights, run_id)}
    )


def kept_rows(nights: Nights, run_id: str) -> Iterator[dict[str, Any]]:
    return (row for row in nights.table("answers") if row["run_id"] != run_id)


def test_rows_beside_one_that_changes_are_copied_with_the_run_that_wrote_them(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    texts: dict[str, str | None] = {name: f"text of {name}" for name in "abcdef"}
    first = nights.run(texts, Q, carried={"team": TEAMS})["run_id"]
    before = by_key(nights.table("answers"))
    second = nights.run({**texts, "b": "other"}, Q, carried={"team": TEAMS})["run_id"]
    after = by_key(nights.table("answers"))
    assert {row["document_id"]: row["run_id"] for row in after.values()} == {**dict.fromkeys(texts, first), "b": second}
    assert {key: row for key, row in after.items() if key[0] != "b"} == {
        key: row for key, row in before.items() if key[0] != "b"
    }
    third = nights.run({**texts, "b": "other"}, Q, carried={"team": {**TEAMS, "b": "pink"}})["run_id"]
    (row,) = [row for row in nights.table("answers") if row["run_id"] == third]
    assert (row["document_id"], row["team"], row["read_run_id"]) == ("b", "pink", second)


def test_many_small_files_are_merged_and_their_rows_stay(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MANY_SMALL", 4)
    texts: dict[str, str | None] = {name: f"text of {name}" for name in "abcdef"}
    nights.run(texts, Q)
    before = by_key(nights.table("memories"))
    monkeypatch.setattr(parts, "PART_READINGS", 100)
    nights.run({**texts, "g": "new"}, Q)
    assert len(nights.files("answers")) == len(nights.files("memories")) == 2
    assert {key: row for key, row in by_key(nights.table("memories")).items() if key[0] != "g"} == before


def test_file_that_was_lost_is_named_when_its_rows_are_needed_and_the_others_can_be_read(nights: Nights) -> None:
    nights.run({"a": "one", "b": "two"}, Q)
    for path in nights.files("answers"):
        (nights.output / "answers" / path).delete()
    with pytest.raises(OutputError, match=r"can't be read|can't be reached"):
        nights.run({"a": "one", "b": "changed"}, Q)


def test_document_that_is_missing_is_a_failed_row_until_it_comes_back_and_is_not_read_again(nights: Nights) -> None:
    bound = {("a", "r"): "Who?", ("b", "r"): "When?"}
    nights.run({"a": "one", "b": "two"}, Q, bound=bound)
    away = nights.run({"a": "one"}, Q, bound=bound)
    shown = ("document_id", "question_id", "status", "answer", "error_type")
    assert sorted(tuple(str(row[name]) for name in shown) for row in nights.table("answers")) == [
        ("a", "q", "ok", "one", "None"),
        ("a", "r", "ok", "one", "None"),
        ("b", "r", "failed", "None", "DocumentMissingError"),
    ]
    assert (away["counts"]["asked"], away["counts"]["ok"], away["counts"]["failed"]) == (3, 2, 1)
    assert away["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 1, "unchanged": 1}
    assert away["changes"]["readings"] == {"read": 0, "kept": 2, "unreadable": 1, "not_read": 0}
    versions = away["table_versions"]
    assert nights.run({"a": "one"}, Q, bound=bound)["table_versions"] == versions
    back = nights.run({"a": "one", "b": "two"}, Q, bound=bound)
    assert back["changes"]["documents"] == {"added": 1, "changed": 0, "removed": 0, "unchanged": 1}
    assert back["changes"]["readings"] == {"read": 0, "kept": 4, "unreadable": 0, "not_read": 0}
    assert nights.answers()["b", "r"] == "two"
