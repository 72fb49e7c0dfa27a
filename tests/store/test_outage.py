"""The turn log on a store that fails for a while, or for good: nothing is lost, and nothing counts that is not kept."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.data.store.turn_log.turns import read_turns
from memagent_batch.data.store.turn_log.writer import FLUSH_BYTES, ROOM_FLUSHES, TurnLogWriter
from memagent_batch.errors import StorageError, StorageOutageError
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.types import Completion, FinishReason, Prompt
from tests.faults.loopback.proxy import FaultProxy, RequestFault
from tests.faults.loopback.small_disk import small_disk
from tests.store.turn_log.indexes import readings_of, turn_keys
from tests.store.turn_log.logs import outcome_row

IMPATIENT = {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 1}}
"""So that a failing store shows at once, and not after the client's own tries."""


@pytest.fixture
def bucket(s3_bucket: Location, proxy: FaultProxy) -> Location:
    """The bucket, reached through the proxy by a client that hardly tries again."""
    options: dict[str, Any] = {
        **s3_bucket.storage_options,
        "client_kwargs": {"endpoint_url": proxy.url},
        "config_kwargs": IMPATIENT,
    }
    return Location(uri=s3_bucket.uri, storage_options=options)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", size="64k") as folder:
        yield folder


def address_of(document: str) -> ReadingAddress:
    return ReadingAddress(document_hash=text_hash(document), question_hash=text_hash("why?"), sample=0, fingerprint="f")


def record(writer: TurnLogWriter, document: str, *, text: str = "memory") -> None:
    prompt = Prompt(path="update/0", kind="update", token_ids=(1,), max_tokens=4)
    writer.record_turn(
        address_of(document), prompt, Completion(token_ids=(7,), text=text, finish_reason=FinishReason.STOP)
    )


def writer_at(output: Location, *, outage_seconds: float) -> TurnLogWriter:
    log = LogConfig(flush_seconds=0.05, outage_seconds=outage_seconds)
    return TurnLogWriter(output, run_id="run", writer_id="w", settings=log)


def documents_in(output: Location) -> set[str]:
    """Documents whose outcome and turn the log holds."""
    index = scan_log(output, fingerprint="f")
    hashes = index.turns["document_hash"].to_pylist()
    turns = read_turns(output, (output / TURNS_FOLDER).files(), fingerprints=["f"], document_hashes=hashes)["f"]
    assert {key for key, rows in turns.items() if rows} >= set(readings_of(index.outcomes))
    return {*index.outcomes["document_hash"].to_pylist()}


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.s3
@pytest.mark.parametrize("fault", list(RequestFault))
async def test_turn_log_through_an_outage_keeps_everything_once(
    fault: RequestFault, bucket: Location, s3_bucket: Location, proxy: FaultProxy
) -> None:
    writer = writer_at(bucket, outage_seconds=60)
    proxy.strike(fault, rate=1)
    names = [f"document {number}" for number in range(5)]
    for name in names:
        record(writer, name)
    durable = [asyncio.ensure_future(writer.record_outcome(address_of(name), outcome_row())) for name in names]
    await until(lambda: proxy.struck[fault] > 0)
    assert fault == RequestFault.SLOW or not any(future.done() for future in durable)
    proxy.strike(rate=0)
    await asyncio.wait_for(asyncio.gather(*durable), timeout=60)
    assert documents_in(s3_bucket) == {text_hash(name) for name in names}


@pytest.mark.s3
async def test_turn_log_on_a_store_that_stays_down_gives_up_with_the_setting_named(
    bucket: Location, s3_bucket: Location, proxy: FaultProxy
) -> None:
    writer = writer_at(bucket, outage_seconds=1)
    proxy.strike(RequestFault.UNAVAILABLE, rate=1)
    with pytest.raises(StorageError, match=r"can't be written.*tried for 1 s \(log\.outage_seconds\)"):
        await asyncio.wait_for(writer.record_outcome(address_of("one"), outcome_row()), timeout=60)
    proxy.strike(rate=0)
    with pytest.raises(StorageError):
        await writer.record_outcome(address_of("two"), outcome_row())
    assert not s3_bucket.files()


@pytest.mark.s3
async def test_turn_log_through_an_outage_makes_turns_wait_once_much_is_held(
    bucket: Location, s3_bucket: Location, proxy: FaultProxy
) -> None:
    writer = writer_at(bucket, outage_seconds=60)
    proxy.strike(RequestFault.INTERNAL_ERROR, rate=1)
    names = iter(range(1000))
    with contextlib.suppress(TimeoutError):
        for number in names:
            await asyncio.wait_for(writer.room(), timeout=0.5)
            record(writer, f"document {number}", text="x" * (FLUSH_BYTES // 2))
    taken = next(names) - 1
    assert taken <= 2 * ROOM_FLUSHES + 1
    proxy.strike(rate=0)
    await asyncio.wait_for(writer.room(), timeout=60)
    await writer.flush()
    assert len(turn_keys(scan_log(s3_bucket, fingerprint="f"))) == taken


@pytest.mark.system
async def test_turn_log_on_a_full_disk_waits_for_room_and_leaves_nothing_half_written(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(56 * 1024))
    output = Location(uri=str(disk / "run"))
    writer = writer_at(output, outage_seconds=60)
    record(writer, "one", text="".join(chr(0x4E00 + number) for number in range(5000)))
    durable = asyncio.ensure_future(writer.record_outcome(address_of("one"), outcome_row()))
    await asyncio.sleep(1)
    assert not durable.done()
    assert not output.files()
    ballast.unlink()
    await asyncio.wait_for(durable, timeout=60)
    assert documents_in(output) == {text_hash("one")}


@pytest.mark.s3
def test_scan_log_of_a_store_that_does_not_answer_is_an_outage_and_no_broken_file(
    bucket: Location, proxy: FaultProxy
) -> None:
    proxy.strike(RequestFault.RESET, rate=1)
    with pytest.raises(StorageOutageError, match="can't be read"):
        scan_log(bucket, fingerprint="f")
