"""Compressed files: the same documents as of plain ones, and damage is never taken for their end."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import require_unique_ids
from tests.inputs.lake.forms import indexed, read

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
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
    index = indexed(Location(uri=str(tmp_path)), settings=InputConfig(on_bad_file="record"))
    assert [name for name in index["document_id"].to_pylist() if name.startswith("a.jsonl")] == [f"a.jsonl{ending}"]


def test_index_two_rows_of_one_id_in_a_compressed_file_are_named_by_their_lines(tmp_path: Path) -> None:
    row = '{"document_id": "same", "text": "t"}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(f"{row}\n{row}".encode()))
    place = Location(uri=str(tmp_path))
    with pytest.raises(InputError, match=r"a\.jsonl\.gz, line 1 and in .*a\.jsonl\.gz, line 3"):
        require_unique_ids(indexed(place, settings=InputConfig()), documents=place)
