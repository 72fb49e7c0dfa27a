"""`verify` of an output on a real S3 API."""

import json

import pytest

from memagent_batch.audit.files import FindingKind
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location
from tests.audit.scan import found, verify_here
from tests.runs.recorded_nights import Nights

pytestmark = pytest.mark.s3


def test_output_in_a_bucket_holds_until_it_is_changed(s3_bucket: Location) -> None:
    nights = Nights(s3_bucket / "scan")
    documents = {"a": "one", "b": "two", "broken": None}
    first = nights.run(documents, {"q": "Why?"})["run_id"]
    manifest = nights.run({**documents, "c": "three"}, {"q": "Why?"})
    result = verify_here(nights.output)
    assert (result.findings, result.num_runs, result.num_rows) == ([], 1, manifest["counts"]["answers_rows"])
    answers, log = nights.output / manifest["files"]["answers"][0], (nights.output / "log/outcomes").files()[0]
    record = nights.output / f"runs/{first}/manifest.json"
    whole = answers.read_bytes()
    answers.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    nights.output.at(log).delete()
    record.write_bytes(json_bytes({**json.loads(record.read_bytes()), "seconds": 1.0}))
    assert found(verify_here(nights.output, all_runs=True)) == {
        (FindingKind.CHANGED.value, manifest["files"]["answers"][0]),
        (FindingKind.GONE.value, f"log/outcomes/{log.rpartition('/')[2]}"),
        (FindingKind.CHANGED.value, f"runs/{first}/manifest.json"),
    }
