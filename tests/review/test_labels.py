"""Labels as they are kept: append-only, whole or not at all, from any spreadsheet."""

import csv
import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memagent_batch.apps.review.estimates import count_labels
from memagent_batch.apps.review.labels import (
    LABELS_FOLDER,
    LabelRow,
    Purpose,
    append_labels,
    current_labels_of,
    read_label_rows,
)
from memagent_batch.apps.review.population import SampleRow
from memagent_batch.apps.review.record import Review
from memagent_batch.apps.review.sheet import SHEET_COLUMNS, parse_sheet, quoted, sheet_bytes, unquoted
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, StorageError
from memagent_batch.loop.texts.escapes import visible

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
DECISION = "value_number >= 1000"
COMMENT = 'a, "b"; c\nd' + "x" * 200_000


def row(document: str, value: str, **others: Any) -> dict[str, Any]:
    return {
        "document_hash": document,
        "question_hash": "q",
        "value": value,
        "reviewer": "ada",
        "labelled_at": NOW,
        "blind": True,
        "purpose": "validate",
        "comment": None,
        "decision": DECISION,
        "choices": ["yes", "no"],
        "review_id": "r",
        "document_id": document,
        "question_id": "clause",
        **others,
    }


def drawn(name: str) -> SampleRow:
    return {
        "document_id": name,
        "document_hash": f"hash of {name}",
        "question_hash": "q",
        "question": "=Who?",
        "stratum": "flagged",
        "copy": 0,
        "number": "0" * 64,
        "rank": 0,
        "is_second": False,
        "confidence": None,
        "source": None,
        "source_unread": None,
    }


@pytest.fixture
def review(tmp_path: Path) -> Review:
    """A review of four readings, one with an id that is a formula, one with an id with an unseen character."""
    record: Any = {"review_id": "r", "question_id": "clause", "choices": ["yes", "no"], "purpose": "validate"}
    record |= {"flagged": "value_number >= 1000"}
    sample = [drawn("a"), drawn("=1+1"), drawn("'quoted'"), drawn("soft\xadhyphen")]
    return Review(folder=Location(uri=str(tmp_path)), record=record, sample=sample)


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An output on a disk and in a bucket."""
    if request.param == "disk":
        return Location(uri=str(tmp_path / "out"))
    bucket: Location = request.getfixturevalue("s3_bucket")
    return bucket / "out"


def filled(review: Review, fill: Callable[[dict[str, str]], None], *, delimiter: str = ",") -> bytes:
    text = sheet_bytes(review.sample, review=review).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, fieldnames=SHEET_COLUMNS, delimiter=delimiter)
    writer.writeheader()
    for each in rows:
        fill(each)
        writer.writerow(each)
    return sink.getvalue().encode()


def test_labels_are_appended_and_the_same_ones_are_not_doubled(output: Location) -> None:
    assert append_labels(output, [row("a", "yes"), row("b", "no")], now=NOW) == 2
    assert append_labels(output, [row("a", "yes"), row("c", "no")], now=NOW) == 1
    assert append_labels(output, [row("a", "yes")], now=NOW) == 0
    rows = read_label_rows(output)
    assert sorted(each["document_hash"] for each in rows) == ["a", "b", "c"]
    before = {path: (output / LABELS_FOLDER).at(path).read_bytes() for path in (output / LABELS_FOLDER).files()}
    append_labels(output, [row("a", "no", labelled_at=NOW + timedelta(1))], now=NOW)
    assert all((output / LABELS_FOLDER).at(path).read_bytes() == data for path, data in before.items())
    assert sorted(each["value"] for each in read_label_rows(output) if each["document_hash"] == "a") == ["no", "yes"]


def test_labels_without_a_time_are_new_only_where_they_say_something_else(output: Location) -> None:
    untimed = row("a", "yes", labelled_at=None)
    assert append_labels(output, [untimed], now=NOW) == 1
    assert append_labels(output, [untimed], now=NOW + timedelta(1)) == 0
    assert append_labels(output, [{**untimed, "reviewer": "Ada"}], now=NOW + timedelta(1)) == 0
    assert append_labels(output, [{**untimed, "value": "no"}], now=NOW + timedelta(2)) == 1
    assert [label["value"] for label in current_labels_of(read_label_rows(output))] == ["no"]
    assert append_labels(output, [{**untimed, "value": "no", "review_id": "s"}], now=NOW) == 1, "another decision"


def test_label_file_without_a_column_that_it_needs_is_refused_and_further_columns_are_left(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "out"))
    append_labels(output, [row("a", "yes")], now=NOW)
    (place,) = (tmp_path / "out" / LABELS_FOLDER).iterdir()
    table = pq.read_table(place)
    pq.write_table(table.append_column("later", [["what a later version adds"]]), place)
    (label,) = read_label_rows(output)
    assert label["decision"] == DECISION
    pq.write_table(table.drop_columns(["blind"]), place)
    with pytest.raises(OutputError, match=r"blind.*restore it: it holds people's work"):
        read_label_rows(output)


def test_imports_at_the_same_time_both_count(output: Location) -> None:
    started = threading.Barrier(8)

    def work(number: int) -> None:
        started.wait()
        append_labels(output, [row(f"{number}-{place}", "yes") for place in range(20)] + [row("same", "no")], now=NOW)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = read_label_rows(output)
    assert len({each["document_hash"] for each in rows}) == len(rows) == 161


def test_import_that_can_not_be_written_adds_nothing(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    blocked = tmp_path / "out" / "review"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(StorageError):
        append_labels(output, [row("a", "yes"), row("b", "no")], now=NOW)
    blocked.unlink()
    assert read_label_rows(output) == []
    assert append_labels(output, [row("a", "yes"), row("b", "no")], now=NOW) == 2


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_sheet_of_a_spreadsheet_is_taken_with_its_hostile_cells(review: Review, delimiter: str) -> None:
    def fill(cells: dict[str, str]) -> None:
        cells |= {"label": "YES", "comment": COMMENT} if cells["document_id"] != "a" else {}
        cells["document_id"] = visible(cells["document_id"])  # as the page has it

    rows = parse_sheet(filled(review, fill, delimiter=delimiter), name="s", reviews={"r": review}, reviewer="ada")
    assert [(each["document_id"], each["value"], each["labelled_at"], each["blind"]) for each in rows] == [
        ("=1+1", "yes", None, True),
        ("'quoted'", "yes", None, True),
        ("soft\xadhyphen", "yes", None, True),
    ]
    assert rows[0]["comment"] == COMMENT
    assert rows[0]["decision"] == DECISION


def test_sheet_has_no_cell_that_is_a_formula(review: Review) -> None:
    text = sheet_bytes(review.sample, review=review).decode("utf-8-sig")
    cells = [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]
    assert "'=1+1" in cells
    assert "'=Who?" in cells
    assert "say yes if the right answer is 1000 or more" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t"))]


@given(st.text("=+-@'\";,\t\r\n ＝a1\ufeff", max_size=12))
@example("it's")
def test_cell_that_was_quoted_is_read_as_it_was(text: str) -> None:
    assert unquoted(quoted(text)) == text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"label": "maybe"}, "line 2: 'maybe' is not a label of this review; write one of yes, no, unclear"),
        ({"label": "yes", "review_id": "x"}, "line 2: review_id 'x' is not a review"),
        ({"label": "yes", "question_hash": "other"}, "line 2: document 'a' with this question is not in the sample"),
        ({"label": "yes", "reviewer": ""}, "line 2: nobody is named as reviewer"),
        ({"label": "yes", "labelled_at": "noon"}, "line 2: labelled_at 'noon' is not a time"),
        ({"label": "yes", "blind": "perhaps"}, "line 2: blind says 'perhaps'"),
    ],
)
def test_sheet_with_a_wrong_row_is_refused_with_its_line(review: Review, values: dict[str, str], message: str) -> None:
    def fill(cells: dict[str, str]) -> None:
        cells |= {"label": "yes", "reviewer": "ada"} | (values if cells["document_id"] == "a" else {})

    with pytest.raises(InputError, match=message):
        parse_sheet(filled(review, fill), name="sheet", reviews={"r": review}, reviewer=None)


def test_sheet_without_its_columns_is_refused(review: Review) -> None:
    for data, message in ((b"a,b\n1,2\n", "no column 'label'"), (b"\xff\xfe", "not UTF-8")):
        with pytest.raises(InputError, match=message):
            parse_sheet(data, name="sheet", reviews={"r": review}, reviewer="ada")


def label(value: str, reviewer: str = "ada", *, minute: int = 0, blind: bool = True, **others: Any) -> LabelRow:
    at = NOW + timedelta(minutes=minute)
    fields = {"document_hash": "hash of a", "question_hash": "q", "purpose": "validate", "decision": DECISION, **others}
    return {"value": value, "reviewer": reviewer, "labelled_at": at, "blind": blind, **fields}


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        ([label("yes")], "yes"),
        ([label("yes"), label("no", minute=1)], "no"),
        ([label("yes"), label("no", minute=1, blind=False)], "yes"),
        ([label("no", blind=False)], None),
        ([label("yes", purpose=Purpose.DEVELOP)], None),
        ([label("yes"), label("no", "bo", minute=1)], "yes"),
        ([label("yes"), label("no", "bo", minute=1), label("no", "cy", minute=2)], "no"),
        ([label("yes", "Ada L"), label("no", "ada  l", minute=1)], "no"),
        ([label("unclear"), label("no", "bo", minute=1)], "no"),
        ([label("unclear")], None),
    ],
)
def test_label_that_counts(labels: list[LabelRow], value: str | None) -> None:
    counted = count_labels([drawn("a")], labels, purpose=Purpose.VALIDATE, decision=DECISION)
    assert counted.units[0].value == value
    assert counted.num_unclear == ({each["value"] for each in labels} == {"unclear"})
