"""Guided turns on engines with a model: nothing between the test and the model is faked."""

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.engines.vllm.engine import VllmEngine
from memagent_batch.loop.follow_ups.answer_types import Json
from memagent_batch.loop.follow_ups.evidence import evidence_guide
from memagent_batch.loop.follow_ups.values import ValueStatus, guide_for, parse_value
from memagent_batch.loop.guides import Guide, GuideKind, choice_guide
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.testing import GUIDED_TOKENS, GUIDES
from memagent_batch.types import Completion, FinishReason, Prompt
from tests.domain.follow_ups.test_values import GUIDED_TYPES
from tests.engine_context import context_of

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

MODELS = ["vllm", "openai"]
TEXTS = ("The number of amber-falcon is 17.", "Who signed?", "1 = yes, 2 = no, 3 = not stated. Write one number.")


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_guided_turn_is_a_text_that_its_guide_allows(engine: Engine, tiny_tokenizer: Tokenizer) -> None:
    await engine.require_guides(set(GuideKind))
    prompts = [prompt_of(text, guide, tokenizer=tiny_tokenizer) for guide in GUIDES for text in TEXTS]
    for prompt, completion in zip(prompts, await complete(engine, prompts), strict=True):
        assert completion.finish_reason is FinishReason.STOP, completion.text
        assert prompt.guide is not None
        # Of a day within JSON a grammar knows the form, but no calendar: 31 November is left to the value's own check.
        written = re.sub(r'"day":"(\d{4}-\d{2})-\d{2}"', r'"day":"\1-01"', completion.text)
        assert prompt.guide.allows(written), completion.text


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_menu_has_a_distribution_whose_mode_is_written(engine: Engine, tiny_tokenizer: Tokenizer) -> None:
    prompts = [prompt_of(text, GUIDES[0], tokenizer=tiny_tokenizer) for text in TEXTS]
    for completion in await complete(engine, prompts):
        assert completion.menu_logprobs is not None
        assert sum(map(math.exp, completion.menu_logprobs)) == pytest.approx(1, abs=1e-3)
        chosen = GUIDES[0].choices.index(completion.text)
        assert completion.menu_logprobs[chosen] == max(completion.menu_logprobs)


@pytest.mark.parametrize("sampled_engine", MODELS, indirect=True)
async def test_guided_turn_is_greedy_where_others_are_drawn(sampled_engine: Engine, tiny_tokenizer: Tokenizer) -> None:
    prompts = [prompt_of(TEXTS[0], GUIDES[4], tokenizer=tiny_tokenizer)] * 8
    assert len({tuple(completion.token_ids) for completion in await complete(sampled_engine, prompts)}) == 1


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_choice_of_several_tokens_has_the_log_probability_of_its_path(
    engine: Engine, tiny_tokenizer: Tokenizer
) -> None:
    prompt = prompt_of(TEXTS[1], choice_guide("supported", "contradicted"), tokenizer=tiny_tokenizer)
    (completion,) = await complete(engine, [prompt])
    assert completion.logprobs is not None
    assert len(completion.logprobs) == len(completion.token_ids)
    assert -20 < sum(completion.logprobs) < 0
    assert completion.menu_logprobs is None


@pytest.mark.slow
async def test_menu_of_a_speculating_engine_is_that_of_one_that_does_not(
    tiny_model: str, tiny_tokenizer: Tokenizer, vllm_greedy: VllmEngine, speculating: VllmEngine
) -> None:
    prompts = [prompt_of(text, guide, tokenizer=tiny_tokenizer) for guide in GUIDES for text in TEXTS]
    plain, guessed = await complete(vllm_greedy, prompts), await complete(speculating, prompts)
    assert [each.text for each in guessed] == [each.text for each in plain]
    for one, other in zip(plain[: len(TEXTS)], guessed, strict=False):
        assert other.menu_logprobs == pytest.approx(one.menu_logprobs, abs=1e-3)


@pytest_asyncio.fixture(loop_scope="session")
async def speculating(tiny_model: str) -> AsyncIterator[VllmEngine]:
    """vLLM with prompt lookup, as a greedy run on CPU has it."""
    settings = VllmEngine(enforce_eager=True, dtype="float32", cpu_kv_cache_gib=1, max_num_seqs=64)
    engine = settings.open(context_of(tiny_model))
    await engine.start()
    yield engine
    await engine.stop()


async def complete(engine: Engine, prompts: list[Prompt]) -> list[Completion]:
    return list(await asyncio.gather(*(engine.complete(prompt, seed=seed) for seed, prompt in enumerate(prompts))))


def prompt_of(text: str, guide: Guide, *, tokenizer: Tokenizer) -> Prompt:
    return Prompt(path="value", kind="value", token_ids=tokenizer.encode(text), max_tokens=GUIDED_TOKENS, guide=guide)


@pytest.mark.parametrize(
    "guide", [*GUIDES, *filter(None, map(guide_for, GUIDED_TYPES)), *map(evidence_guide, (1, 7, 99, 1234))]
)
async def test_guide_of_every_type_compiles_in_a_moment_and_allows_what_it_says(guide: Guide) -> None:
    import xgrammar
    from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features
    from xgrammar.testing import _is_grammar_accept_string as accepts

    began = time.process_time()
    match guide.kind:
        case GuideKind.CHOICE:
            return
        case GuideKind.REGEX:
            grammar = xgrammar.Grammar.from_regex(guide.regex)
        case GuideKind.JSON:
            assert not has_xgrammar_unsupported_json_features(guide.sent_json_schema())
            grammar = xgrammar.Grammar.from_json_schema(
                json.dumps(guide.sent_json_schema()), any_whitespace=False, separators=(",", ":")
            )
    assert time.process_time() - began < 5
    numbers = ["", "0", "1", "01", "1, 2", "1, 1", "2, 1", "-1.50", "501"]
    for text in [guide.example, *numbers, "none", "not stated", "null", "{}", "2024-13-01"]:
        assert accepts(grammar, text) == guide.allows(text), text


@pytest.mark.parametrize("bounds", [{}, {"minLength": 2, "maxLength": 300}, {"maxLength": 0}])
async def test_string_may_have_escapes_and_no_raw_control_characters_and_its_bounds_are_checked(
    bounds: dict[str, int],
) -> None:
    import xgrammar
    from xgrammar.testing import _is_grammar_accept_string as accepts

    value_type = Json({"type": "string", **bounds}, not_stated=False)
    guide = guide_for(value_type)
    assert guide is not None
    schema = json.dumps(guide.sent_json_schema())
    grammar = xgrammar.Grammar.from_json_schema(schema, any_whitespace=False, separators=(",", ":"))
    least, most = bounds.get("minLength", 0), bounds.get("maxLength", 1000)
    for character in ['"', "\\", "\n", "\t", "x", "第", "é", "\U0001f600"]:
        for length in (0, 1, 2, 300, 301):
            text = json.dumps(character * length, ensure_ascii=False)
            assert accepts(grammar, text)
            completion = Completion(token_ids=[1], text=text, finish_reason=FinishReason.STOP)
            value = parse_value(completion, value_type, answer=None)
            assert (value.status is ValueStatus.OK) == (least <= length <= most), text
    assert not any(accepts(grammar, f'"a{raw}b"') for raw in ["\t", "\n", "\x01", '"'])
