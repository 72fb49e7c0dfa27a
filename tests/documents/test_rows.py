"""Documents of many rows: pages and messages, wherever their rows lie."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.loop.texts.locators import locators
from tests.documents.lake.forms import indexed, read, read_stored

PAGED = InputConfig(order_columns=("page",), locator="page {page}")
MAILS = InputConfig(
    document_id_column="thread",
    text_column="body",
    order_columns=("sent_at", "n"),
    header="{sender}, {sent_at}",
    locator="message {n}",
)


def _write(folder: Path, rows: list[dict[str, Any]], *, num_files: int = 2, form: str = "parquet") -> Location:
    folder.mkdir(exist_ok=True)
    for number in range(num_files):
        part, path = rows[number::num_files], folder / f"{number}.{form}"
        if form == "parquet" and part:
            pq.write_table(pa.Table.from_pylist(part), path, row_group_size=2)
        elif part:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in part))
    return Location(uri=str(folder))


def _page(name: str, page: Any, text: str | None) -> dict[str, Any]:
    return {"document_id": name, "page": page, "text": text}


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_index_and_fetch_rows_are_joined_in_order_with_their_headers_and_places(form: str, tmp_path: Path) -> None:
    mails = [
        {"thread": 7, "body": f"body {n}", "sender": "Änne" if n % 2 else None, "sent_at": f"2026-01-{n:02}", "n": n}
        for n in range(1, 12)
    ]
    shuffled = random.Random(3).sample(mails, len(mails))
    place = _write(tmp_path / "in", shuffled, num_files=3, form=form)
    index = indexed(place, settings=MAILS)
    found = read_stored(place.uri, MAILS)["7"]
    parts = [f"{mail['sender'] or ''}, {mail['sent_at']}\n{mail['body']}" for mail in mails]
    assert found.text == "\n\n".join(parts)
    assert index["num_bytes"].to_pylist() == [len(found.text.encode())]
    assert [row.locator for row in found.parts] == [f"message {n}" for n in range(1, 12)]
    assert [found.text[row.char_start : row.char_end] for row in found.parts] == parts
    start = found.text.index("body 4")
    assert locators(found.parts, char_start=start, char_end=found.text.index("body 5") + 1) == (
        "message 4",
        "message 5",
    )


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        ([10, 9, 1], [1, 9, 10]),
        (["10", "9", "1"], ["1", "9", "10"]),
        (["2", "1.5", "-3"], ["-3", "1.5", "2"]),
        (["b", "10", "09"], ["09", "10", "b"]),
        (
            ["2026-03-01T09:30:00+01:00", "2026-03-01T08:00:00-0500", "2026-03-01 09:00Z"],
            ["2026-03-01T09:30:00+01:00", "2026-03-01 09:00Z", "2026-03-01T08:00:00-0500"],
        ),
        ([True, False], [False, True]),
    ],
)
def test_index_numbers_are_ordered_as_numbers_and_texts_as_texts(
    pages: list[Any], wanted: list[Any], tmp_path: Path
) -> None:
    place = _write(tmp_path / "in", [_page("a", page, f"<{page}>") for page in pages], num_files=1)
    assert read(place.uri, PAGED)["a"] == "\n\n".join(f"<{page}>" for page in wanted)


@pytest.mark.parametrize("unit", ["s", "us"])
def test_index_times_with_a_zone_are_ordered_as_they_came(unit: str, tmp_path: Path) -> None:
    began = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    times = {began + timedelta(minutes=20 * number): f"<{number}>" for number in range(6)}  # the clocks go back at 1:00
    for number, zone in enumerate(("Europe/Berlin", "America/New_York")):
        part = [*times.items()][number::2]
        named = pa.array([time for time, _ in part], pa.timestamp("us" if number else unit, zone))
        columns = {"document_id": ["a"] * len(part), "page": named, "text": [text for _, text in part]}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    values = PAGED.model_copy(update={"locator": None})
    assert read(str(tmp_path), values)["a"] == "\n\n".join(times.values())


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "-Infinity"])
def test_index_number_that_is_none_beside_numbers_is_refused(odd: Any, tmp_path: Path) -> None:
    numbers = [str(number) if isinstance(odd, str) else float(number) for number in (1, 10, 2)]
    pages = [_page("a", page, "x") for page in (*numbers, odd)]
    place = _write(tmp_path / "in", pages, num_files=1)
    with pytest.raises(InputError, match=r"document_id 'a': .*row group 2, row 2: page is (nan|inf|-Infinity), and"):
        indexed(place, settings=PAGED)
    alone = _write(tmp_path / "alone", [_page("b", "nan", "a name"), _page("b", "ann", "another")])
    assert set(read(alone.uri, PAGED)) == {"b"}


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (["1", "2", "10", "10a"], r"row group 2, row 2: page is 10a, and its other rows have numbers"),
        (
            ["2026-03-01T09:30:00+01:00", "2026-03-01T09:00:00"],
            r"row group 1, row 2: page is 2026-03-01T09:00:00, and its other rows have times with an offset; give this",
        ),
    ],
)
def test_index_values_that_texts_would_put_in_a_wrong_order_are_refused(
    pages: list[str], message: str, tmp_path: Path
) -> None:
    place = _write(tmp_path / "in", [_page("a", page, "x") for page in pages], num_files=1)
    with pytest.raises(InputError, match=message):
        indexed(place, settings=PAGED)


def test_index_document_of_blank_pages_alone_is_empty(tmp_path: Path) -> None:
    rows = [_page("a", 1, ""), _page("a", 2, " \n"), _page("b", 1, ""), _page("b", 2, "y")]
    place = _write(tmp_path / "in", rows, num_files=1)
    assert "document_id 'a': the text is empty" in indexed(place, settings=PAGED)["error"][0].as_py()
    assert read(place.uri, PAGED) == {"a": None, "b": "\n\ny"}


def test_index_empty_field_of_csv_is_a_blank_page_and_no_document(tmp_path: Path) -> None:
    (tmp_path / "pages.csv").write_text("document_id,page,text\na,1,first\na,2,\na,3,third\n")
    place = Location(uri=str(tmp_path))
    (row,) = indexed(place, settings=PAGED).to_pylist()
    assert row["error"] is None
    assert read(place.uri, PAGED)["a"] == "first\n\n\n\nthird"
    (tmp_path / "pages.csv").write_text("document_id,text\nb,\n")
    (row,) = indexed(place, settings=InputConfig()).to_pylist()
    assert "line 2: the text is null" in row["error"]


def test_index_row_without_a_place_in_the_order_is_refused(tmp_path: Path) -> None:
    place = _write(tmp_path / "in", [_page("a", 1, "x"), _page("a", None, "y")], num_files=1)
    with pytest.raises(InputError, match=r"row 2: column 'page' is null"):
        indexed(place, settings=PAGED)


@pytest.mark.parametrize("template", ["page {}", "{0}", "{page.x}", "{page[0]}", "{page!r}", "{page:>9}", "{page"])
def test_settings_template_that_names_more_than_a_column_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="braces"):
        InputConfig(order_columns=("page",), locator=template)


def test_settings_header_without_an_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"name input\.order_columns"):
        InputConfig(header="{sender}")


@settings(max_examples=20)
@given(
    documents=st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.text(st.sampled_from("aé𝄞\n"), max_size=4), min_size=1, max_size=5),
        min_size=1,
    ),
    seed=st.integers(0, 99),
)
def test_index_and_fetch_any_pages_anywhere_rejoin_to_their_text(
    documents: dict[str, list[str]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [_page(name, number, text) for name, texts in documents.items() for number, text in enumerate(texts)]
    random.Random(seed).shuffle(rows)
    place = _write(tmp_path_factory.mktemp("rows") / "in", rows, num_files=1 + seed % 3)
    found = read_stored(place.uri, PAGED)
    joined = {name: "\n\n".join(texts) for name, texts in documents.items() if any(map(str.strip, texts))}
    assert {name: stored.text for name, stored in found.items()} == joined
    for name, stored in found.items():
        assert [stored.text[part.char_start : part.char_end] for part in stored.parts] == documents[name]


def test_text_file_whose_header_names_a_key_of_its_folder_is_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "year=2024"
    folder.mkdir()
    (folder / "a.txt").write_text("Hello")
    values = InputConfig(order_columns=("year",), header="Year {year}")
    place = Location(uri=str(tmp_path))
    assert [*read(place.uri, values).values()] == ["Year 2024\nHello"]
