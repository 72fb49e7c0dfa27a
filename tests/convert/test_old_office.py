"""Office files of before 2007, as LibreOffice converts them, and the independent count of their words."""

import gzip
import resource
from pathlib import Path

import pytest

from memagent_batch.data.ingest.counts.old_office import old_office_contents
from memagent_batch.data.ingest.counts.words import words_of
from memagent_batch.data.ingest.readers import old_office
from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind, recognise
from tests.convert.rows import RowsOf

CASES = Path(__file__).parent / "cases"
TEXTS = {
    "lease.doc": {
        "section 1: Lease of Müller’s mill": "Except in leap years. | Deposit | 4,410 | договор | Boxed clause",
        "header": "Headwater estate",
        "footer": "Bates 000417",
        "comments": "Too low.",
    },
    "rents.xls": {
        "sheet Rents": "Tenant Müller | 1234.5 | 13% (12.5%) | договор",
        "sheet Rents, comments": "Disputed since May.",
    },
    "talk.ppt": {
        "slide 1": "Quarry of Müller | Output is 615 tons | договор",
        "slide 1, notes": "Do not mention the flood.",
    },
}
"""Pieces of the parts of each file."""


def case(name: str) -> bytes:
    return gzip.decompress((CASES / f"{name}.gz").read_bytes())


@pytest.mark.parametrize("name", TEXTS)
def test_old_file_is_read_as_what_libreoffice_makes_of_it(rows_of: RowsOf, name: str) -> None:
    rows = rows_of(name, case(name))
    assert {(row["locator"], row["status"]) for row in rows} == {(locator, "ok") for locator in TEXTS[name]}
    for row in rows:
        assert [piece for piece in TEXTS[name][row["locator"]].split(" | ") if piece not in row["text"]] == []
    assert "that LibreOffice" in rows[0]["reason"]


@pytest.mark.parametrize("name", TEXTS)
def test_words_of_an_old_file_are_counted_without_libreoffice(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(case(name))
    counted = {word for content in old_office_contents(file) for word in words_of(content.text)}
    wanted = {word for text in TEXTS[name].values() for word in words_of(text) if word.isalpha()}
    assert wanted - counted == set()


def test_old_file_without_libreoffice_is_skipped_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_office, "find_libreoffice", lambda: None)
    file = tmp_path / "lease.doc"
    file.write_bytes(case("lease.doc"))
    (part,) = old_office.OldOfficeConverter().convert(file)
    assert isinstance(part, Part)
    assert (part.status, "apt-get install libreoffice" in (part.reason or "")) == (PartStatus.SKIPPED, True)
    assert "missing" in old_office.OldOfficeConverter().version()


@pytest.mark.parametrize(("name", "ending"), [("lease.doc", ""), ("rents.xls", ".dat"), ("talk.ppt", ".bin")])
def test_old_file_is_known_by_its_streams(tmp_path: Path, name: str, ending: str) -> None:
    file = tmp_path / f"file{ending}"
    file.write_bytes(case(name))
    assert recognise(file) is FileKind.OLD_OFFICE


@pytest.mark.parametrize(("limit", "is_short"), [(1 << 20, True), (resource.RLIM_INFINITY, False)])
def test_failure_near_the_limit_of_memory_is_one_of_memory(
    monkeypatch: pytest.MonkeyPatch, limit: int, is_short: bool
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert old_office._is_short_of_memory() == is_short


def test_failure_is_none_of_memory_where_the_system_states_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 20, 1 << 20))
    monkeypatch.setattr(Path, "read_text", lambda file: "Name:\tpython\n")
    assert not old_office._is_short_of_memory()


def test_old_file_that_is_cut_or_another_program_s_fails(rows_of: RowsOf) -> None:
    (cut,) = rows_of("cut.doc", case("lease.doc")[:700])
    assert cut["status"] == "failed"
