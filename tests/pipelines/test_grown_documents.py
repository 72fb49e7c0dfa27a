"""Documents that grew or changed in part cost what is new in them, and end with the tables of reading them anew."""

from pathlib import Path
from typing import Any

import pytest

from memagent_batch.files.location import Location
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.state import read_state
from tests.pipelines.grown import QUESTIONS, Stream, text_of

CLOSING: dict[str, Any] = {"closing": {"evidence": True}}
SAMPLED: dict[str, Any] = {"sampling": {"temperature": 0.7}}
SHARED: dict[str, Any] = {"policy": {"kind": "shared"}}
PARALLEL: dict[str, Any] = {"policy": {"kind": "parallel", "rounds": 2}}


@pytest.fixture
def model(text_model: str) -> str:
    return text_model


async def require_anew(stream: Stream, manifest: Manifest, texts: dict[str, str], model: str, **knobs: Any) -> None:
    """The tables are those of an output without a history."""
    other = Stream(stream.documents.parent, model, output=f"anew-{manifest['run_id']}", **knobs)
    assert stream.tables(manifest) == other.tables(await other.night(texts))


@pytest.mark.parametrize("knobs", [{}, CLOSING, SHARED, PARALLEL], ids=["overwrite", "closing", "shared", "parallel"])
async def test_grown_documents_ask_what_is_new_and_equal_reading_anew(
    model: str, tmp_path: Path, knobs: dict[str, Any]
) -> None:
    stream = Stream(tmp_path, model, **knobs)
    for days in (2, 3, 4):
        texts = {name: text_of(name, days=days) for name in "ab"}
        manifest = await stream.night(texts)
        chunks = [row["num_chunks"] for row in stream.table(manifest, "answers")]
        print(knobs, days, manifest["changes"]["turns"], chunks, stream.asked(manifest))
    await require_anew(stream, manifest, texts, model, **knobs)
