import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.data_files import DataFile, read_records
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, Record, Unreadable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import indexed, read

TEXT = InputColumn(name="text", kind=ColumnKind.DOCUMENT, presence=Presence.SOME, setting="input.text_column")
ID = InputColumn(
    name="document_id", kind=ColumnKind.IDENTIFIER, presence=Presence.EVERY, setting="input.document_id_column"
)
REFERENCES = InputColumn(name="r", kind=ColumnKind.REFERENCES, presence=Presence.OPTIONAL)


def _read(format_: Format, path: Path, data: bytes, *columns: InputColumn) -> list[Record]:
    path.write_bytes(data)
    return list(read_records(DataFile(location=Location(uri=str(path)), format=format_), columns=columns))


def test_jsonl_records_have_their_lines(tmp_path: Path) -> None:
    data = '\ufeff{"text": "é"}\n\n  \r\n{"text": "b", "x": 1}\r\n{"text": "c"}'.encode()
    records = _read(Format.JSONL, tmp_path / "f", data, TEXT)
    assert [record.values for record in records] == [("é",), ("b",), ("c",)]
    assert [record.place for record in records] == [(1, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"document_id": 1, "text": ""}\n{"text": "a"}', r"line 2.*no column 'document_id'; its columns: 'text'"),
        (b'{"document_id": 1.5, "text": ""}', "line 1.*'document_id' holds float"),
        (b'{"a": ' * 100_000, "malformed JSON"),
        (b'{"document_id": ' + b"1" * 5000 + b"}", "malformed JSON"),
        (b'[{"document_id": 1}]', "is a JSON list; write one JSON object a line"),
        (b'{"document_id": 1, "text": ""}\n[1]', "line 2.*holds list, not an object"),
        (b'{"document_id": 1, "text": "\xff"}', "line 1: invalid UTF-8 at byte 29"),
    ],
)
def test_jsonl_bad_file_is_refused_with_place_and_remedy(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        _read(Format.JSONL, tmp_path / "f", data, ID, TEXT)


def test_jsonl_lone_surrogate_concerns_its_document_only(tmp_path: Path) -> None:
    bad, good = _read(Format.JSONL, tmp_path / "f", b'{"text": "\\ud800"}\n{"text": "a"}', TEXT)
    assert isinstance(bad.values[0], Unreadable)
    assert good.values == ("a",)


def test_csv_multi_line_fields_have_their_places(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbfdocument_id,text\r\n1,"a\r\nb,""c"\n\n2,plain\r\n3,"\n\n"'
    records = _read(Format.CSV, tmp_path / "f", data, ID, TEXT)
    assert [record.values for record in records] == [("1", 'a\r\nb,"c'), ("2", "plain"), ("3", "\n\n")]
    assert [record.place for record in records] == [(2, 0), (5, 0), (6, 0)]


def test_csv_empty_field_is_null_where_optional_and_no_text_of_a_document(tmp_path: Path) -> None:
    (record,) = _read(Format.CSV, tmp_path / "f", b"text,r\n,\n", TEXT, REFERENCES)
    text, references = record.values
    assert isinstance(text, Unreadable)
    assert text.reason.startswith("the text is null")
    assert references is None


@pytest.mark.parametrize(
    ("field", "expected"), [('"[""a"", ""b""]"', ["a", "b"]), ("a", "a"), ("[a]", "[a]"), ("[1]", ["1"])]
)
def test_csv_references_are_a_json_list_or_a_text(field: str, expected: object, tmp_path: Path) -> None:
    (record,) = _read(Format.CSV, tmp_path / "f", f"r\n{field}\n".encode(), REFERENCES)
    assert record.values == (expected,)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "header row"),
        (b"id,text\n1,a\n", "no column 'document_id'; its columns: 'id', 'text'"),
        (b"document_id,text,text\n", "2 columns 'text'"),
        (b"document_id,text\n,a\n", "line 2: column 'document_id' is empty"),
        (b'document_id,text\n1,"a\n2,b\n', r"f, line 2 to 3: malformed CSV .*unexpected end"),
        (b'document_id,text\n1,"a"b\n', "line 2: malformed CSV"),
        (b'document_id,text\n\n1,"a\n\nb"\n2\n', "line 6 has 1 fields"),
        (b"document_id,text\r1,a\r", "malformed CSV"),
        (b"document_id,text\n1,\xff\n", "line 2: invalid UTF-8 at byte 20"),
    ],
)
def test_csv_bad_file_is_refused_with_place_and_remedy(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        _read(Format.CSV, tmp_path / "f", data, ID, TEXT)


PACKINGS: dict[str, Callable[[bytes], bytes]]
PACKINGS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress}
JSONL = "".join(f'{{"document_id": "{n}", "text": "text {n} \\u00e9{"x" * n}"}}\n' for n in range(200))
CSV = 'document_id,text\n1,"two\nlines"\n2,"a ""quote"""\n'
packings = pytest.mark.parametrize("ending", PACKINGS)


@packings
@pytest.mark.parametrize(("name", "text"), [("a.jsonl", JSONL), ("a.csv", CSV), ("a.txt", "\ufeffplain\r\ntext")])
def test_index_and_fetch_compressed_file_has_the_texts_of_the_plain_one(
    name: str, text: str, ending: str, tmp_path: Path
) -> None:
    data, pack = text.encode(), PACKINGS[ending]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / name).write_bytes(data)
    (tmp_path / "deep/er/and/deeper").mkdir(parents=True)
    half = len(data) // 2  # several members in one file, as parallel packers write them
    (tmp_path / "deep/er/and/deeper" / (name + ending)).write_bytes(pack(data[:half]) + pack(data[half:]))
    packed = read(str(tmp_path / "deep"))
    plain = read(str(tmp_path / "plain"))
    assert list(packed.values()) == list(plain.values())
    assert list(packed) == [f"er/and/deeper/a.txt{ending}" if name == "a.txt" else found for found in plain]


@packings
def test_index_compressed_file_that_is_cut_short_is_refused_by_name(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACKINGS[ending](JSONL.encode())[:-20])
    with pytest.raises(InputError, match=r"a\.jsonl"):
        indexed(Location(uri=str(tmp_path)), settings=InputConfig())
    (tmp_path / "b.jsonl").write_text('{"document_id": "b", "text": "whole"}\n')
    index = indexed(Location(uri=str(tmp_path)), settings=InputConfig(on_bad_file="record"))
    assert [name for name in index["document_id"].to_pylist() if name.startswith("a.jsonl")] == [f"a.jsonl{ending}"]


def test_index_two_rows_of_one_id_in_a_compressed_file_are_named_by_their_lines(tmp_path: Path) -> None:
    row = '{"document_id": "same", "text": "t"}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(f"{row}\n{row}".encode()))
    place = Location(uri=str(tmp_path))
    with pytest.raises(InputError, match=r"a\.jsonl\.gz, line 1 and in .*a\.jsonl\.gz, line 3"):
        indexed(place, settings=InputConfig())
