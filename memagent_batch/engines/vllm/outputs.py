"""What vLLM returns and raises, in this project's words."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memagent_batch.domain.guides import Guide, GuideKind
from memagent_batch.domain.turns import FinishReason
from memagent_batch.errors import EngineRequestError

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM


async def final_output(
    llm: "AsyncLLM", token_ids: list[int], *, params: "SamplingParams", request_id: str
) -> "RequestOutput":
    """The last output of one request.

    Raises:
        ValueError: none came.
    """
    from vllm.inputs import tokens_input

    final = None
    async for output in llm.generate(tokens_input(token_ids), params, request_id):
        final = output
    if final is None or not final.outputs:
        raise ValueError("no output came back")
    return final


def finish_reason(completion: "CompletionOutput", *, path: str) -> FinishReason:
    """Why a completion ended.

    Raises:
        EngineRequestError: the request was ended without one.
    """
    reason = completion.finish_reason
    if reason not in tuple(FinishReason):
        raise EngineRequestError(f"turn {path}: vLLM ended the request with `{reason}`, not with a completion")
    return FinishReason(reason)


def logprobs(completion: "CompletionOutput") -> list[float]:
    """Log-probability of each returned token."""
    return [
        float(entry[token_id].logprob)
        for token_id, entry in zip(completion.token_ids, completion.logprobs or (), strict=True)
    ]


def structured_outputs(guide: Guide | None) -> Any:
    """A guide in vLLM's words."""
    from vllm.sampling_params import StructuredOutputsParams

    if guide is None:
        return None
    match guide.kind:
        case GuideKind.CHOICE:
            return StructuredOutputsParams(choice=list(guide.choices))
        case GuideKind.REGEX:
            return StructuredOutputsParams(regex=guide.regex)
        case GuideKind.JSON:
            return StructuredOutputsParams(json=guide.sent_json_schema())


def first_candidates(completion: "CompletionOutput") -> Iterator[tuple[int, float]]:
    """Tokens that could have come first, with their log-probabilities."""
    for entries in (completion.logprobs or ())[:1]:
        for token_id, entry in entries.items():
            yield token_id, float(entry.logprob)


def inner_message(error: BaseException) -> str:
    """An error's message in one paragraph, without pydantic's frame around it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(str(detail["msg"]) for detail in error.errors(include_url=False, include_input=False))
    return f"{type(error).__name__}: {error}"
