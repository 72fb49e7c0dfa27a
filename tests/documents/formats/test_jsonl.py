import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.documents.formats import jsonl
from memagent_batch.documents.formats.jsonl import read_objects
from memagent_batch.errors import InputError
from memagent_batch.store.location import Location

OBJECTS = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=5))),
    max_size=4,
)


def values(path: Path) -> list[dict[str, Any]]:
    return [item.value for item in read_objects(Location(uri=str(path)))]


@given(OBJECTS, st.sampled_from([None, 2]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_read_objects_array_and_lines_give_the_same(
    tmp_path: Path, objects: list[dict[str, Any]], indent: int | None
) -> None:
    array, lines = tmp_path / "a.json", tmp_path / "b.jsonl"
    array.write_bytes(b"\xef\xbb\xbf \n" + json.dumps(objects, indent=indent).encode())
    lines.write_text("\n\n".join(json.dumps(value) for value in objects), encoding="utf-8")
    assert values(array) == values(lines) == objects


def test_read_objects_places_name_file_and_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}, {"a": 2}]')
    found = [item.where for item in read_objects(Location(uri=str(tmp_path / "a.json")))]
    assert found == [f"{tmp_path}/a.json, record {number}" for number in (1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"a" 2}]', r"a\.json: malformed JSON .*line 2 column 6.*write an array of objects"),
        ('[{"a": 1}', r"a\.json: malformed JSON"),
        ('[{"a": 1}]\n[{"a": 2}]', r"a\.json: malformed JSON .*Extra data: line 2"),
        ('[{"a": "\udcff"}]', r"a\.json: malformed JSON .*0xff"),
        ('[{"a": 1}, 5]', r"a\.json, record 2 holds int, not an object"),
        ('{"a": 1}\n{"a"}', r"a\.json, line 2: malformed JSON"),
        ('{"a": 1}\n[1]', r"a\.json, line 2 holds list, not an object"),
    ],
)
def test_read_objects_malformed_is_refused_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message):
        values(tmp_path / "a.json")


def test_read_objects_array_that_is_too_large_to_read_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_ARRAY_BYTES", 1 << 20)
    (tmp_path / "a.json").write_text(json.dumps([{"a": "x" * (1 << 20)}]))
    with pytest.raises(InputError, match=r"a\.json is a JSON array of more than 1 MiB; write one JSON object a line"):
        values(tmp_path / "a.json")
