"""What a night asks of an object store: an unchanged one lists it, and a changed one opens what changed."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from memagent_batch.flows.answer import answer
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes
from tests.faults.loopback.proxy import FaultProxy
from tests.jobs import small_job


def write_objects(bucket: Location, numbers: Sequence[int], *, text: str) -> None:
    """Writes documents, and the inventory of all of them."""
    for number in numbers:
        (bucket / f"in/{number}.txt").write_bytes(f"{text} {number}".encode())
    bucket.fs.invalidate_cache()
    found = bucket.fs.find(f"{bucket.path}/in", detail=True)
    rows = [{"path": f"s3://{name}", "size": each["size"], "etag": each["ETag"]} for name, each in found.items()]
    (bucket / "inventory.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))


@pytest.mark.s3
@pytest.mark.parametrize("has_inventory", [False, True])
def test_unchanged_night_opens_no_object_and_a_changed_one_its_own(
    s3_endpoint: str, s3_bucket: Location, text_model: str, tmp_path: Path, has_inventory: bool
) -> None:
    nights: list[tuple[int, int]] = []
    with FaultProxy(upstream=s3_endpoint) as proxy:
        options = {**s3_bucket.storage_options, "client_kwargs": {"endpoint_url": proxy.url}}
        job = small_job(
            tmp_path,
            text_model,
            documents=f"{s3_bucket.uri}/in",
            output=f"{s3_bucket.uri}/out",
            ask=("Who?",),
            storage_options=options,
            input={"inventory": f"{s3_bucket.uri}/inventory.parquet"} if has_inventory else {},
        )
        for changed in (range(12), (), (0,)):
            write_objects(s3_bucket, changed, text=f"night {len(nights)}")
            proxy.asked.clear()
            num_read = answer(job)["changes"]["readings"]["read"]
            of_documents = {line for line in proxy.asked if f"{s3_bucket.path}/in/" in line.split("?")[0]}
            nights.append((num_read, len({line for line in of_documents if not line.startswith("HEAD")})))
    assert nights == [(12, 12), (0, 0), (1, 1)]
