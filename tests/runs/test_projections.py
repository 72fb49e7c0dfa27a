"""A projection that is recorded and restored is the same one, wherever the output lies by then."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.job import TableFormat
from memagent_batch.config.sources import InputConfig
from memagent_batch.domain.answers import Extraction
from memagent_batch.files.location import Location
from memagent_batch.runs.projection import Projection, projection_record, restored_projection
from tests.runs.projections import projection_at


def test_projection_is_restored_from_json_with_other_places(tmp_path: Path) -> None:
    made = Projection(
        output=Location(uri="s3://bucket/scan"),
        run_id="r",
        reader_fingerprint="f",
        model="m",
        first_memory="No memory.",
        keep_word="KEEP",
        extraction=Extraction.AUTO,
        table_format=TableFormat.ARROW,
        closings={"c": ["t", "u"]},
        has_evidence=True,
        documents=Location(uri="s3://bucket/in"),
        input=InputConfig(text_column="body"),
    )
    record = json.loads(json.dumps(projection_record(made)))
    assert "bucket" not in json.dumps(record)
    here = {"output": Location(uri=str(tmp_path)), "run_id": "r", "documents": None, "input": InputConfig()}
    assert restored_projection(record, **here) == replace(made, **here)  # type: ignore[arg-type]
    assert restored_projection({**record, "rules": "0" * 64}, **here) is None


@pytest.mark.parametrize("change", [{"keep_words": "x"}, {"extraction": "nothing"}, {"second": {"a": 1}}])
def test_projection_of_other_fields_or_values_is_of_another_version(change: dict[str, Any], tmp_path: Path) -> None:
    place = Location(uri=str(tmp_path))
    made = projection_at(place)
    record = projection_record(made)
    here = {"output": place, "run_id": "run", "documents": None, "input": InputConfig()}
    assert restored_projection(record, **here) == made
    assert restored_projection({**record, "projection": {**record["projection"], **change}}, **here) is None
    assert restored_projection({"rules": record["rules"]}, **here) is None
