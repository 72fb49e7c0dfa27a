"""What is not a sign of tampering: texts that can't be fetched, and nights that go on while an output is looked at."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.audit.files import check_files
from memagent_batch.documents.texts import FetchedText, fetch_texts
from memagent_batch.errors import OutputChangedError
from memagent_batch.flows import audit as pipeline
from memagent_batch.runs import evidence
from memagent_batch.store.location import Location
from tests.audit.scan import ASK, NIGHTS, Copy, found, verify_here
from tests.flows.grown import Stream, text_of
from tests.flows.test_grown_documents import Pages


def no_texts(*given: Any, **settings: Any) -> Iterator[FetchedText]:
    """As `fetch_texts` where the store is away."""
    yield from (replace(each, text=None, rows=()) for each in fetch_texts(*given, **settings))


def test_texts_that_can_not_be_fetched_now_leave_evidence_unchecked(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "fetch_texts", no_texts)
    result = copy.verify()
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["evidence and locators of 4 documents"])


def test_evidence_that_a_run_wrote_without_texts_is_not_checked(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(tmp_path, text_model, ask=ASK, follow_ups={"evidence": True})
    monkeypatch.setattr(evidence, "fetch_texts", no_texts)
    manifest = stream.night(NIGHTS[1])
    monkeypatch.undo()
    assert [part["key"] for part in manifest["parts"]] == [None]
    result = verify_here(Location(uri=str(stream.output)))
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["evidence and locators of 4 documents"])


def test_locators_are_compared_with_the_documents_where_these_are_read(text_model: str, tmp_path: Path) -> None:
    stream = Pages(tmp_path, text_model, input={"order_columns": ["page"], "locator": "page {page}"})
    manifest = stream.night({"a": text_of("Ann", days=3), "b": text_of("Bob", days=2)})
    output = Location(uri=str(stream.output))
    assert any("page 2" in (row["locator"] or "") for row in stream.table(manifest, "memories"))
    result = verify_here(output)
    assert (result.findings, result.unchecked) == ([], [])
    result = verify_here(output, with_text=False)
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["locators"])
    stream.put({"a": text_of("Ann", days=3)})
    result = verify_here(output)
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["evidence and locators of 1 documents"])


@pytest.mark.parametrize("is_other", [True, False])
def test_findings_of_an_output_in_which_a_run_finished_meanwhile_are_not_told(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, is_other: bool
) -> None:
    name = copy.manifest["files"]["memories"][0]

    def slow(*given: Any, **settings: Any) -> Any:
        (copy.folder / name).unlink()
        checked = check_files(*given, **settings)
        if is_other:
            copy.rewrite(lambda manifest: manifest.update(seconds=1.0), seals=False)
        return checked

    monkeypatch.setattr(pipeline, "check_files", slow)
    if is_other:
        with pytest.raises(OutputChangedError, match="a run has finished"):
            copy.verify()
    else:
        assert ("gone", name) in found(copy.verify())
