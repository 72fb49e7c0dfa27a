import pytest

from memagent_batch.data.documents.formats.formats import Format, format_of
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, column_value
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


@pytest.mark.parametrize("path", ["a.jsonl.xz", "a.parquet.gz", "a.feather.zst", "a.zip"])
def test_format_of_compressed_file_is_refused_with_unpacking(path: str) -> None:
    with pytest.raises(InputError, match="unpack"):
        format_of(path, where=path, remedy="")


def test_convert_carried_value_nested_deeper_than_can_be_written_is_refused() -> None:
    carried, value = InputColumn(name="c", kind=ColumnKind.CARRIED, presence=Presence.SOME), list[object]()
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InputError, match="row 3: column 'c' is nested too deeply"):
        column_value(value, column=carried, where="row 3")
