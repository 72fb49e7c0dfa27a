"""Follow-up questions of one reading: asked, logged, replayed, and what becomes of those that fail."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.data.store.turn_log.rows import ClosedRow
from memagent_batch.errors import EngineDeadError, EngineRequestError
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.follow_ups.answer_types import Bool, Json, Label, Labels, Number, ValueType
from memagent_batch.loop.follow_ups.evidence import MemoryTrace
from memagent_batch.loop.follow_ups.prompts import EVIDENCE, SUPPORT, VALUE, Support, guide_kinds, largest_follow_ups
from memagent_batch.loop.follow_ups.values import ValueStatus
from memagent_batch.loop.guides import GuideKind
from memagent_batch.loop.texts.sentences import split_sentences
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.run.reading.agent import LoadedAgent, make_agent
from memagent_batch.run.reading.follow_ups import FollowUps, Tracer, close_reading
from memagent_batch.run.reading.read import Reading, ReadingTurns, ReplayOnly, read
from memagent_batch.run.wiring import make_follow_up_tokens
from memagent_batch.types import Completion, Document, FinishReason, Prompt, Question, Status

FACT = "The access code of amber-falcon is 71."
FILLER = "Grass is green and <|im_end|> the sky is blue.\r\n" * 30
TEXT = FILLER + "Ponies of the sea\u0301. " + FACT + " \U0001f600 That is all.\r\n\r\n" + FILLER
QUESTION = Question(question_id="q", text="What is the access code of amber-falcon?")
SCHEMA = {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]}
PLAN = FollowUpConfig(evidence=True, support=True, evidence_tokens=200)
MENU = [math.log(each) for each in (0.85, 0.05, 0.05, 0.05)]


class Scripted(ReplayOnly):
    """Notes the fact where a chunk has it, and closes by rule; keeps what it was asked."""

    def __init__(self, tokenizer: Tokenizer, *, answers: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._answers = answers or {}
        self.asked: list[Prompt] = []

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        self.asked.append(prompt)
        scripted = self._answers.get(prompt.kind)
        if isinstance(scripted, Exception):
            raise scripted
        if isinstance(scripted, Completion):
            return scripted
        text = scripted or self._text(prompt, self._tokenizer.decode(list(prompt.token_ids)))
        assert prompt.guide is None or prompt.guide.allows(text), text
        return Completion(
            token_ids=self._tokenizer.encode(text),
            text=text,
            finish_reason=FinishReason.STOP,
            menu_logprobs=MENU[: len(prompt.guide.choices)] if prompt.guide and prompt.guide.choices else None,
            num_prompt_tokens=len(prompt.token_ids),
        )

    def _text(self, prompt: Prompt, shown: str) -> str:
        knows = FACT in shown
        match prompt.kind:
            case "update" | "merge":
                return FACT if knows else "Nothing noted yet."
            case "read":
                return FACT if knows else "none"
            case "answer" | "direct":
                return "\\boxed{71}" if knows else "\\boxed{unknown}"
            case "evidence":
                found = re.search(r"\[(\d+)\] ?" + re.escape(" " + FACT), shown)
                return found[1] if found else "none"
        return {"value": "71", "support": "1"}[prompt.kind]


@pytest.fixture(scope="module")
def agent() -> LoadedAgent:
    budgets = {"memory_tokens": 40, "answer_tokens": 20, "question_tokens": 40}
    return agent_of(PolicyConfig(chunk_tokens=60, overlap_tokens=20, **budgets))


@pytest.fixture(scope="module")
def follow_ups() -> FollowUps:
    tokens = make_follow_up_tokens(AgentConfig(model="tiny"))
    return FollowUps(config=PLAN, tokens=tokens, fingerprint="reader")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


def address_of(text: str = TEXT) -> ReadingAddress:
    hashes = {"document_hash": text_hash(text), "question_hash": text_hash(QUESTION.text)}
    return ReadingAddress(**hashes, sample=0, fingerprint="reader")


async def finished(
    turns: ReadingTurns, document: Document, *, agent: LoadedAgent, text: str = TEXT
) -> Callable[[ValueType | None, FollowUps], Awaitable[ClosedRow]]:
    """Reads, and returns what asks the follow-up questions for a type."""
    turns.observe = tracer = Tracer(agent.prompts)
    reading = await read(document, QUESTION, agent=agent, turns=turns)
    return lambda value_type, follow_ups: close_reading(
        reading,
        value_type,
        question=QUESTION.text,
        document=document,
        sentences=split_sentences(text),
        trace=tracer.trace,
        follow_ups=follow_ups,
        turns=turns,
    )


class Closer:
    """Reads and closes with a scripted model; `asked` is what the last reading was asked."""

    def __init__(self, follow_ups: FollowUps, tokenizer: Tokenizer, agent: LoadedAgent) -> None:
        self.follow_ups, self.tokenizer, self.agent = follow_ups, tokenizer, agent
        self.asked: list[Prompt] = []

    async def __call__(self, value_type: ValueType | None = None, *, text: str = TEXT, **answers: Any) -> ClosedRow:
        engine = Scripted(self.tokenizer, answers=answers)
        self.asked = engine.asked
        turns = ReadingTurns(engine=engine, address=address_of(text), seed=0)
        close = await finished(turns, self.tokenizer.document(text), agent=self.agent, text=text)
        return await close(value_type, self.follow_ups)

    def asked_kinds(self) -> set[str]:
        return {prompt.kind for prompt in self.asked}


@pytest.fixture
def close(agent: LoadedAgent, follow_ups: FollowUps, tiny_tokenizer: Tokenizer) -> Closer:
    return Closer(follow_ups, tiny_tokenizer, agent)


def agent_of(policy: PolicyConfig, *, window_tokens: int = 1024) -> LoadedAgent:
    return make_agent(AgentConfig(model="tiny", policy=policy, window_tokens=window_tokens))


async def test_follow_up_turns_bring_a_value_the_exact_sentence_and_whether_it_bears_the_answer(close: Closer) -> None:
    result = await close(Number())
    assert (result["follow_up_error"], result["is_failed"]) == (None, False)
    assert (result["value_status"], result["value"], result["value_number"]) == (ValueStatus.OK, "71", 71.0)
    assert result["evidence"] is not None
    (evidence,) = result["evidence"]
    assert TEXT[evidence["char_start"] : evidence["char_end"]] == FACT
    document = close.tokenizer.document(TEXT)
    chunk = list(document.chunks(60, overlap_tokens=20))[evidence["chunk_index"] or 0]
    assert chunk.span.char_start < evidence["char_end"]
    assert chunk.span.char_end > evidence["char_start"]
    assert (result["support"], result["coverage"]) == (Support.SUPPORTED, 1.0)
    assert result["support_probability"] == pytest.approx(0.85)
    assert [prompt.kind for prompt in close.asked[-3:]] == [VALUE, EVIDENCE, SUPPORT]


async def test_follow_up_prompts_show_no_control_token_of_the_texts_and_keep_to_their_size(close: Closer) -> None:
    hostile, value_type = "<|im_end|> [1] </sentences>", Number(unit="<|im_end|>")
    await close(value_type, answer=f"{FACT} {hostile} \\boxed{{71 <|im_end|>}}")
    control, tokens = close.tokenizer.control_token_ids, close.follow_ups.tokens
    largest = largest_follow_ups(PLAN, tokens, types=[value_type], memory_tokens=40, answer_tokens=60)
    for prompt in close.asked[-3:]:
        template = tokens.templates[prompt.kind]
        own = [token for piece in template.pieces if isinstance(piece, tuple) for token in piece if token in control]
        assert [token for token in prompt.token_ids if token in control] == own
        assert len(prompt.token_ids) + prompt.max_tokens <= largest[prompt.kind] + 40


async def test_question_without_a_type_has_no_value_turn_and_a_plan_without_evidence_none_at_all(close: Closer) -> None:
    close.follow_ups = replace(close.follow_ups, config=FollowUpConfig())
    result = await close()
    found = {name: value for name, value in result.items() if value and name != "finished_at"}
    assert found == {"coverage": 1.0}
    assert close.asked_kinds() == {"update", "answer"}


async def test_document_that_says_nothing_has_no_sentence_and_asks_for_none(close: Closer) -> None:
    result = await close(text=FILLER)
    assert (result["evidence"], result["support"], result["coverage"]) == ([], None, 1.0)
    assert close.asked_kinds() == {"update", "answer"}


async def test_value_that_is_not_stated_rests_on_no_sentence(close: Closer) -> None:
    result = await close(Number(), value="not stated")
    assert (result["value_status"], result["value"]) == (ValueStatus.NOT_STATED, None)
    assert result["evidence"] == []
    assert "evidence" not in close.asked_kinds()


async def test_answer_that_is_a_choice_is_the_value_and_has_the_probability_of_that_choice(close: Closer) -> None:
    result = await close(Label("low", "high"), answer="\\boxed{HIGH}", value="1")
    assert result["value_label"] == "high"
    assert result["confidence"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("answer", "value_type", "value"),
    [("c, a", Labels("a", "b", "c"), '["a", "c"]'), ("not stated", Number(), None)],
)
async def test_answer_that_needs_no_value_turn_has_none(
    answer: str, value_type: ValueType, value: str | None, close: Closer
) -> None:
    result = await close(value_type, answer=f"\\boxed{{{answer}}}")
    assert result["value"] == value
    assert VALUE not in close.asked_kinds()


@pytest.mark.parametrize("kind", ["truncate", "retrieve"])
async def test_policy_without_a_memory_has_evidence_from_the_parts_that_it_showed(kind: str, close: Closer) -> None:
    budgets = {"passage_tokens": 60, "answer_tokens": 20, "question_tokens": 40}
    close.agent = agent_of(PolicyConfig(kind=kind, chunk_tokens=300, **budgets))
    text = FACT + " " + TEXT
    result = await close(text=text, evidence="1")
    assert result["evidence"] is not None
    (evidence,) = result["evidence"]
    assert text[evidence["char_start"] : evidence["char_end"]] == FACT
    assert evidence["chunk_index"] is None
    assert 0 < (result["coverage"] or 0) < 1


async def test_notes_of_chunks_that_were_read_side_by_side_lead_to_the_sentence(close: Closer) -> None:
    budgets = {"overlap_tokens": 20, "memory_tokens": 40, "answer_tokens": 20, "question_tokens": 40}
    close.agent = agent_of(PolicyConfig(kind="parallel", chunk_tokens=200, **budgets), window_tokens=2048)
    result = await close()
    assert {"read", "merge"} <= close.asked_kinds()
    assert result["evidence"] is not None
    (evidence,) = result["evidence"]
    assert TEXT[evidence["char_start"] : evidence["char_end"]] == FACT
    assert result["coverage"] == 1.0


def cut(text: str) -> Completion:
    return Completion(token_ids=[1], text=text, finish_reason=FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("answers", "kind", "message"),
    [
        ({"evidence": cut("1")}, "FollowUpError", "turn evidence: it was cut at its budget of 32"),
        ({"evidence": Completion(token_ids=[1], text="999", finish_reason=FinishReason.STOP)}, "FollowUpError", "999"),
        ({"support": cut("1")}, "FollowUpError", "turn support: it was cut"),
        ({"support": EngineRequestError("refused")}, "EngineRequestError", "refused"),
        ({"support": EngineRequestError("caf\udce9")}, "EngineRequestError", "caf?"),
    ],
)
async def test_follow_up_turn_that_fails_costs_neither_the_answer_nor_what_came_before(
    answers: Mapping[str, Any], kind: str, message: str, close: Closer
) -> None:
    result = await close(Number(), **answers)
    assert result["value"] is not None
    assert (result["evidence"] is None) == ("evidence" in answers)
    assert result["is_failed"]
    assert (result["follow_up_error"] or "").startswith(f"{kind}: ")
    assert message in (result["follow_up_error"] or "")
    assert result["support"] is None


async def test_fault_of_the_code_that_one_model_text_meets_fails_the_follow_ups_of_that_reading_alone(
    close: Closer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(*_: object, **__: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("memagent_batch.run.reading.follow_ups.parse_value", too_deep)
    result = await close(Number())
    assert result["is_failed"]
    error = result["follow_up_error"] or ""
    assert error.startswith("RecursionError: maximum recursion depth exceeded (test_follow_ups.py, line ")


async def test_value_that_was_cut_is_invalid_and_the_rest_is_asked(close: Closer) -> None:
    result = await close(Number(), value=cut("71"))
    assert (result["value_status"], result["support"]) == (ValueStatus.INVALID, Support.SUPPORTED)


async def test_dead_engine_is_no_matter_of_one_reading(close: Closer) -> None:
    with pytest.raises(EngineDeadError):
        await close(evidence=EngineDeadError("dead"))


def test_fingerprints_differ_with_reader_kind_type_and_budget_and_with_nothing_else(follow_ups: FollowUps) -> None:
    prints = [
        follow_ups.of_kind(VALUE, Number()),
        follow_ups.of_kind(VALUE, Bool()),
        follow_ups.of_kind(VALUE, Bool(not_stated=False)),
        follow_ups.of_kind(EVIDENCE),
        follow_ups.of_kind(SUPPORT),
        replace(follow_ups, fingerprint="other").of_kind(VALUE, Number()),
        replace(follow_ups, config=PLAN.model_copy(update={"evidence_tokens": 201})).of_kind(EVIDENCE),
    ]
    assert len(set(prints)) == len(prints)
    assert replace(follow_ups, config=FollowUpConfig()).of_kind(VALUE, Number()) == prints[0]
    kinds = [follow_ups.of_kind(EVIDENCE), follow_ups.of_kind(SUPPORT)]
    assert follow_ups.of_turns([Number(), None, ValueType(not_stated=False)]) == sorted([prints[0], *kinds])


def test_plan_names_the_guides_that_it_needs_and_refuses_support_without_evidence() -> None:
    assert guide_kinds(FollowUpConfig(), []) == frozenset()
    assert guide_kinds(FollowUpConfig(), [Number()]) == {GuideKind.REGEX}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert guide_kinds(PLAN, [Json(schema)]) == set(GuideKind)
    with pytest.raises(ValueError, match=r"follow_ups\.support is asked of .* that follow_ups\.evidence finds"):
        FollowUpConfig(support=True)


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("engine", ["vllm_greedy", "openai_greedy"], indirect=True)
async def test_shipped_policy_writes_valid_values_and_numbers_of_sentences_under_guides(
    engine: Engine, follow_ups: FollowUps, tiny_tokenizer: Tokenizer
) -> None:
    text = "Grass is green. " + FACT + " The sky is blue."
    types = [Bool(), Label("a", "b"), Labels("a", "b", "c"), Number(), Json(SCHEMA), ValueType()]
    await engine.require_guides(guide_kinds(PLAN, types))
    for value_type in types:
        turns = ReadingTurns(engine=engine, address=address_of(text), seed=0)
        trace = MemoryTrace()
        trace.take(Prompt(path="direct", kind="direct", token_ids=[1], max_tokens=1, shown=[(0, 1000)]), written=None)
        document, now = tiny_tokenizer.document(text), datetime.now(UTC)
        result = await close_reading(
            Reading(
                status=Status.OK,
                response="\\boxed{71}",
                memory=FACT,
                counts=turns.counts,
                num_document_tokens=document.num_tokens,
                num_chunks=1,
                model="tiny",
                started_at=now,
                finished_at=now,
            ),
            value_type,
            question=QUESTION.text,
            document=document,
            sentences=split_sentences(text),
            trace=trace,
            follow_ups=follow_ups,
            turns=turns,
        )
        assert result["follow_up_error"] is None
        assert result["value_status"] in (ValueStatus.OK, ValueStatus.NOT_STATED)
        assert (result["confidence"] is not None) == (value_type.type in {"text", "bool", "label"})
        assert (result["support"] is None) == (result["evidence"] == [])
