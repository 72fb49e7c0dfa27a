import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats import json_objects
from memagent_batch.inputs.formats.json_objects import read_objects

OBJECTS = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=5))),
    max_size=4,
)
LONG = 'He said "\\no\\" \u00fc \U0001f600 {[,]} \\\\' * 60_000
"""More than one block of what is read at once, with all that could be taken for the end of an object."""


def values(path: Path) -> list[dict[str, Any]]:
    return [item.value for item in read_objects(Location(uri=str(path)))]


@given(OBJECTS, st.sampled_from([None, 2]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_read_objects_array_and_lines_give_the_same(
    tmp_path: Path, objects: list[dict[str, Any]], indent: int | None, is_ascii: bool
) -> None:
    array, lines = tmp_path / "a.json", tmp_path / "b.jsonl"
    array.write_text(
        json.dumps(objects, indent=indent, ensure_ascii=is_ascii), encoding="utf-8", errors="surrogatepass"
    )
    lines.write_text("\n\n".join(json.dumps(value) for value in objects), encoding="utf-8")
    assert values(lines) == objects
    assert values(array) == objects


@pytest.mark.parametrize("is_ascii", [True, False])
def test_read_objects_longer_than_a_block_are_whole(tmp_path: Path, is_ascii: bool) -> None:
    objects = [{"a": LONG}, {"b": 1}, {"c": [LONG[:7]] * 40_000}, {"d": True}]
    (tmp_path / "a.json").write_text(json.dumps(objects, ensure_ascii=is_ascii), encoding="utf-8")
    assert values(tmp_path / "a.json") == objects


def test_read_objects_what_only_an_exact_parser_keeps_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"half": "\\ud800x", "large": 123456789012345678901234567890, "exact": 0.1}]')
    assert values(tmp_path / "a.json") == [{"half": "\ud800x", "large": 123456789012345678901234567890, "exact": 0.1}]


@pytest.mark.parametrize("block_bytes", [1, 1024])
def test_read_objects_numbers_that_json_lines_take_are_read_from_an_array_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(json_objects, "_PARSED_BYTES", block_bytes)
    text = '{"a": NaN, "b": [Infinity, -Infinity,NaN], "c": 1e400, "d": -1e400, "e": 0.1, "f": "NaN", "g": 1E5}'
    (tmp_path / "a.json").write_text(f"[{text}, {text}]")
    (tmp_path / "b.jsonl").write_text(f"{text}\n{text}")
    assert str(values(tmp_path / "a.json")) == str(values(tmp_path / "b.jsonl"))
    assert str(values(tmp_path / "a.json")[0]["b"]) == "[inf, -inf, nan]"


@pytest.mark.parametrize(
    "text", ["N aN", "Na", "nan", "NaN1", "Infinit", "- Infinity", "-NaN", "+Infinity", "InfinityE5", "-", "1e"]
)
def test_read_objects_what_is_nearly_a_number_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(f'[{{"a": {text}}}]')
    with pytest.raises(InputError, match=r"a\.json, record 1, line 1: malformed JSON .Unexpected symbol"):
        values(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(f'[{{"a": {text}')
    with pytest.raises(InputError, match=r"a\.json, record 1, line 1: malformed JSON"):
        values(tmp_path / "a.json")


def test_read_objects_constant_in_the_place_of_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[{NaN: 1}]")
    with pytest.raises(InputError, match=r"record 1, line 1: malformed JSON .Unexpected symbol"):
        values(tmp_path / "a.json")


def test_read_objects_long_text_is_read_in_blocks_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_objects, "_PARSED_BYTES", 16)
    reads: list[int] = []
    read = json_objects._Lines.read

    def counted(lines: json_objects._Lines, num_bytes: int) -> bytes:
        block = read(lines, num_bytes)
        reads.append(len(block))
        return block

    monkeypatch.setattr(json_objects._Lines, "read", counted)
    objects = [{"a": "x" * 2**16}, *({"b": number} for number in range(100))]
    (tmp_path / "a.json").write_text(json.dumps(objects))
    assert values(tmp_path / "a.json") == objects
    long = [number for number, size in enumerate(reads) if size > 16]
    assert len(long) < 20
    assert long[-1] < 20 < len(reads)


def test_read_objects_byte_order_mark_and_empty_array_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf [ ]")
    assert values(tmp_path / "a.json") == []


def test_read_objects_places_name_record_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n{"a": 1},\n\n{"a": 2}]')
    assert [
        item.where.removeprefix(f"{tmp_path}/") for item in read_objects(Location(uri=str(tmp_path / "a.json")))
    ] == [
        "a.json, record 1, line 2",
        "a.json, record 2, line 4",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"a" 2}]', r"a\.json, record 2.*, line 2.*: malformed JSON .*write an array of objects"),
        ('[{"a": 1}\n {"a": 2}]', r"a\.json, record 2, line 2: malformed JSON .*'\{'"),
        ('[{"a": 1}', r"a\.json, record 2, line 1: malformed JSON .*Incomplete"),
        ('[{"a": "1', r"a\.json, record 1.*malformed JSON"),
        ('[{"a": 1}]\n[{"a": 2}]', r"a\.json, record 2, line 2: malformed JSON .*Additional data"),
        ('[{"a": "\n"}]', r"a\.json, record 1, line 2: malformed JSON .*Invalid control character"),
        ('[{"a": 1}, 5]', r"a\.json, record 2.* holds int, not an object"),
        ('{"a": 1}\n{"a"}', r"a\.json, line 2.*malformed JSON"),
        ('{"a": 1}\n[1]', r"a\.json, line 2.*holds list, not an object"),
    ],
)
def test_read_objects_malformed_is_refused_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=message):
        values(tmp_path / "a.json")


def test_read_objects_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(InputError, match=r"a\.json, record 1, line 1: malformed JSON .*0xff"):
        values(tmp_path / "a.json")


def test_read_objects_malformed_record_is_refused_before_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a" 1}, ' + json.dumps({"a": LONG}) + ", {broken]")
    with pytest.raises(InputError, match=r"record 1, line 1: malformed JSON .Unexpected symbol '1' at 6.;"):
        values(tmp_path / "a.json")


def test_read_objects_line_is_right_after_many_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[\n" + (json.dumps({"a": LONG}) + ",\n") * 3 + "5]")
    with pytest.raises(InputError, match="record 4, line 5 holds int"):
        values(tmp_path / "a.json")
