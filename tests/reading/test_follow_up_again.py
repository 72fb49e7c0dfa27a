"""Which follow-up questions of a reading are asked again: those that failed, by a later run; none for each type in
turn."""

from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.turns import DocumentTurns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.loop.follow_ups.answer_types import Bool, Label, Number, ValueType
from memagent_batch.loop.follow_ups.prompts import EVIDENCE, SUPPORT, VALUE
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.follow_ups import FollowUps
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly
from memagent_batch.run.wiring import make_follow_up_tokens
from memagent_batch.types import Completion, FinishReason
from tests.reading.test_follow_ups import PLAN, TEXT, Scripted, address_of, cut, finished

POLICY = PolicyConfig(chunk_tokens=60, memory_tokens=40, answer_tokens=20, question_tokens=40, overlap_tokens=20)
AGENT = AgentConfig(model="tiny", policy=POLICY, window_tokens=1024)
TYPES: tuple[ValueType | None, ...] = (Bool(), Label("a", "b"), None)
WRONG = Completion(token_ids=[1], text="999", finish_reason=FinishReason.STOP)


async def night(
    folder: Path,
    run_id: str,
    engine: ReplayOnly,
    *types: ValueType | None,
    tokenizer: Tokenizer,
    text: str = TEXT,
    keeps: bool = True,
) -> list[dict[str, Any]]:
    """What follow-up questions bring for each of these types of one question, in a run over the log of a folder.

    The document has grown to `text` since the first night. Without `keeps` turns are only replayed.
    """
    follow_ups = FollowUps(config=PLAN, tokens=make_follow_up_tokens(AGENT), fingerprint="reader")
    output = Location(uri=str(folder))
    log = TurnLogWriter(output, run_id=run_id, writer_id="w", settings=LogConfig(flush_seconds=0.01))
    address = address_of(text)
    logged = DocumentTurns(
        output,
        sorted(map(str, (folder / "log/turns").glob("*.parquet"))),
        fingerprints=["reader", *follow_ups.of_turns(types)],
        document_hash=address.document_hash,
        document_id="name",
    )
    turns = ReadingTurns(
        engine=engine,
        address=address,
        document_id="name",
        seed=0,
        from_log=logged.of_reading(address.question_hash, address.sample),
        log=log if keeps else None,
    )
    close = await finished(turns, tokenizer.document(text), agent=make_agent(AGENT), text=text)
    results = [await close(each, follow_ups) for each in types]
    await log.flush()
    return [{name: value for name, value in each.items() if name != "finished_at"} for each in results]


def follow_up_kinds(engine: Scripted) -> list[str]:
    return [prompt.kind for prompt in engine.asked if prompt.fingerprint is not None]


async def test_evidence_and_support_are_asked_once_for_all_types_of_one_question(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    engine = Scripted(tiny_tokenizer, answers={"value": "1"})
    results = await night(tmp_path, "1", engine, *TYPES, tokenizer=tiny_tokenizer)
    assert follow_up_kinds(engine) == [VALUE, EVIDENCE, SUPPORT, VALUE]
    assert len({str((each["evidence"], each["support"], each["support_probability"])) for each in results}) == 1
    assert results[0]["support"] is not None
    replayed = await night(tmp_path, "2", ReplayOnly(), *TYPES, tokenizer=tiny_tokenizer)
    assert replayed == results


async def test_follow_up_turns_of_a_logged_reading_are_asked_alone_and_another_type_asks_its_value_alone(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    first, second, other = (Scripted(tiny_tokenizer, answers=answers) for answers in ({}, {}, {"value": "2"}))
    await night(tmp_path, "1", first, tokenizer=tiny_tokenizer)
    assert {prompt.kind for prompt in first.asked} == {"update", "answer"}
    await night(tmp_path, "2", second, Number(), tokenizer=tiny_tokenizer)
    assert [prompt.kind for prompt in second.asked] == [VALUE, EVIDENCE, SUPPORT]
    (again,) = await night(tmp_path, "3", other, Bool(), tokenizer=tiny_tokenizer)
    assert [prompt.kind for prompt in other.asked] == [VALUE]
    assert again["confidence"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("kind", "failed"), [(EVIDENCE, cut("1")), (SUPPORT, cut("1")), (EVIDENCE, WRONG), (SUPPORT, WRONG)]
)
async def test_follow_up_turn_that_failed_by_what_it_wrote_is_asked_again_by_a_later_run_and_then_held(
    kind: str, failed: Completion, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    answers: dict[str, Any] = {"value": "1", kind: failed}
    broken = Scripted(tiny_tokenizer, answers=answers)
    first = await night(tmp_path, "1", broken, *TYPES, tokenizer=tiny_tokenizer)
    assert all(each["is_failed"] for each in first)
    assert follow_up_kinds(broken).count(kind) == 1
    restarted = await night(tmp_path, "1", ReplayOnly(), *TYPES, tokenizer=tiny_tokenizer)
    assert [each["follow_up_error"] for each in restarted] == [each["follow_up_error"] for each in first]
    verified = await night(tmp_path, "2", ReplayOnly(), *TYPES, tokenizer=tiny_tokenizer, keeps=False)
    assert [each["follow_up_error"] for each in verified] == [each["follow_up_error"] for each in first]
    working = Scripted(tiny_tokenizer)
    again = await night(tmp_path, "2", working, *TYPES, tokenizer=tiny_tokenizer)
    assert follow_up_kinds(working) == ([EVIDENCE, SUPPORT] if kind == EVIDENCE else [SUPPORT])
    assert [each["follow_up_error"] for each in again] == [None] * len(TYPES)
    assert await night(tmp_path, "3", ReplayOnly(), *TYPES, tokenizer=tiny_tokenizer) == again


async def test_document_that_grew_takes_no_failed_follow_up_turn_from_its_last_version(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    broken = Scripted(tiny_tokenizer, answers={"evidence": cut("1")})
    await night(tmp_path, "1", broken, None, tokenizer=tiny_tokenizer)
    (asked,) = [prompt for prompt in broken.asked if prompt.kind == EVIDENCE]
    working = Scripted(tiny_tokenizer)
    (result,) = await night(tmp_path, "2", working, None, tokenizer=tiny_tokenizer, text=TEXT + "Grass grows.")
    (again,) = [prompt for prompt in working.asked if prompt.kind == EVIDENCE]
    assert again.token_ids == asked.token_ids
    assert result["follow_up_error"] is None


async def test_value_that_was_cut_is_held_as_it_is(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    broken = Scripted(tiny_tokenizer, answers={"value": cut("1")})
    first = await night(tmp_path, "1", broken, Bool(), tokenizer=tiny_tokenizer)
    assert not first[0]["is_failed"]
    assert await night(tmp_path, "2", ReplayOnly(), Bool(), tokenizer=tiny_tokenizer) == first
