import pytest

from memagent_batch.documents.formats.formats import Format, format_of
from memagent_batch.documents.formats.records import ColumnKind, InputColumn, Presence, Unreadable, column_value, decode
from memagent_batch.errors import InputError


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b/x.parquet", Format.PARQUET),
        ("a/b.JSONL", Format.JSONL),
        ("a.ndjson", Format.JSONL),
        ("a.json", Format.JSONL),
        ("a.b.csv", Format.CSV),
        ("a.arrow", Format.ARROW),
        ("a.feather", Format.ARROW),
        ("a.txt", Format.TEXT),
        ("a.md", Format.TEXT),
        ("a.jsonl.gz", Format.JSONL),
        ("a.b.CSV.ZST", Format.CSV),
        ("a.txt.bz2", Format.TEXT),
    ],
)
def test_format_of_known_ending_is_its_format(path: str, expected: Format) -> None:
    assert format_of(path, where=path, remedy="") is expected


def test_format_of_unknown_ending_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"a\.pdf: .*do this"):
        format_of("a.pdf", where="x/a.pdf", remedy="do this")


@pytest.mark.parametrize("path", ["a.jsonl.xz", "a.parquet.gz", "a.feather.zst", "a.zip"])
def test_format_of_compressed_file_is_refused_with_unpacking(path: str) -> None:
    with pytest.raises(InputError, match="unpack"):
        format_of(path, where=path, remedy="")


def _column(kind: ColumnKind, presence: Presence = Presence.SOME) -> InputColumn:
    return InputColumn(name="c", kind=kind, presence=presence, setting="input.c")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (ColumnKind.DOCUMENT, "", ""),
        (ColumnKind.DOCUMENT, None, None),
        (ColumnKind.DOCUMENT, Unreadable(reason="x"), Unreadable(reason="x")),
        (ColumnKind.IDENTIFIER, 7, "7"),
        (ColumnKind.IDENTIFIER, -(2**70), str(-(2**70))),
        (ColumnKind.REFERENCES, ["a", 2], ["a", "2"]),
        (ColumnKind.REFERENCES, "a", "a"),
        (ColumnKind.CARRIED, 1.5, "1.5"),
        (ColumnKind.CARRIED, True, "true"),
        (ColumnKind.CARRIED, {"a": ["é"]}, '{"a": ["é"]}'),
        (ColumnKind.CARRIED, "text", "text"),
    ],
)
def test_convert_value_of_its_kind_is_kept_or_made_text(kind: ColumnKind, value: object, expected: object) -> None:
    assert column_value(value, column=_column(kind), where="f") == expected


def test_convert_lone_surrogate_concerns_the_document_only() -> None:
    value = column_value("ab\ud800", column=_column(ColumnKind.DOCUMENT), where="f")
    assert isinstance(value, Unreadable)
    assert "character 3" in value.reason


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ColumnKind.DOCUMENT, 5),
        (ColumnKind.TEXT, 5),
        (ColumnKind.TEXT, "\ud800"),
        (ColumnKind.TEXT, Unreadable(reason="x")),
        (ColumnKind.IDENTIFIER, 1.0),
        (ColumnKind.IDENTIFIER, True),
        (ColumnKind.IDENTIFIER, "\ud800"),
        (ColumnKind.REFERENCES, ["a", None]),
        (ColumnKind.REFERENCES, {"a": 1}),
    ],
)
def test_convert_value_of_another_type_is_refused_with_column_and_place(kind: ColumnKind, value: object) -> None:
    with pytest.raises(InputError, match="row 3: column 'c'"):
        column_value(value, column=_column(kind), where="row 3")


def test_convert_carried_value_nested_deeper_than_can_be_written_is_refused() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(InputError, match="row 3: column 'c' is nested too deeply"):
        column_value(value, column=_column(ColumnKind.CARRIED), where="row 3")


@pytest.mark.parametrize(("value", "state"), [(None, "null"), ("", "empty"), (" \n", "empty")])
def test_convert_blank_value_where_every_row_needs_one_is_refused(value: object, state: str) -> None:
    with pytest.raises(InputError, match=f"row 3: column 'c' is {state}"):
        column_value(value, column=_column(ColumnKind.TEXT, Presence.EVERY), where="row 3")


def test_decode_invalid_utf8_names_the_byte() -> None:
    value = decode(b"ab\xff")
    assert isinstance(value, Unreadable)
    assert "byte 3" in value.reason
