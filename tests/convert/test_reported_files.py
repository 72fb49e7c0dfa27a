"""Small files that readers once read wrongly: `cases/reported.yaml` says what each of them gives."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.data.ingest.files import FileConverter
from memagent_batch.data.ingest.losses import find_losses
from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.ocr import OcrConverter

CASES = Path(__file__).parent / "cases"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "reported.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_reported_file_is_read_and_says_its_losses(file_converter: FileConverter, name: str) -> None:
    documents = file_converter.convert(CASES / "reported" / name, name=name)
    parts = [part for document in documents for part in document.parts]
    text = "\n".join(part.text or "" for part in parts)
    places = "\n".join(part.locator for part in parts)
    expected = EXPECTED[name]
    assert [piece for piece in expected["contains"] if piece not in text] == []
    assert [piece for piece in expected.get("lacks", ()) if piece in text or piece in places] == []
    found = find_losses(documents)
    losses, _ = found.get(name) or next(iter(found.values()))  # an archive has no document of its own
    said = [f"{loss['severity']}: {loss['place']} {loss['detail']}" for loss in losses]
    wanted = [each.split(": ", 1) for each in expected.get("losses", ())]
    assert len(said) == len(wanted), said
    for severity, piece in wanted:
        assert [each for each in said if each.startswith(severity) and piece in each], (piece, said)


def test_each_reported_file_has_its_expectations() -> None:
    assert {file.name for file in (CASES / "reported").iterdir()} == {*EXPECTED}


def test_line_of_another_script_is_named_beside_those_that_ocr_reads() -> None:
    (part,) = OcrConverter().convert(CASES / "reported" / "two_scripts.png")
    assert isinstance(part, Part)
    assert "Lease of Fernmill, page 2" in part.text
    assert part.status == PartStatus.NEEDS_OCR
    assert "of its 4 lines" in (part.reason or "")
