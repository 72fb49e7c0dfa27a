"""Nights of a scan that asks one typed question, whose follow-up questions are written into the log by hand."""

from typing import Any

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.follow_ups.answer_types import Json, ValueType
from memagent_batch.run.reading.follow_ups import make_follow_ups
from tests.runs.recorded_nights import Nights, plan_of

PRICE = Json({"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]})
CUT = {"value_status": "invalid", "follow_up_error": "it was cut at the turn's budget"}
FAILED = {"is_failed": True, "follow_up_error": "EngineRequestError: it was refused"}
FIVE = {"value_status": "ok", "value": '{"price":5}'}


def agent_of(model: str) -> AgentConfig:
    policy = PolicyConfig(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    return AgentConfig(model=model, engine="simulated", window_tokens=1000, policy=policy)


def night(
    nights: Nights,
    *values: dict[str, Any],
    value_type: ValueType = PRICE,
    model: str,
    retried: bool = False,
    **follow_ups: Any,
) -> str:
    """A night over as many documents as values; returns its run."""
    documents = {str(number): f"text {number}" for number in range(len(values))}
    asked = make_follow_ups(FollowUpConfig(**follow_ups), agent_of(model), fingerprint="f")
    job = job_of(documents="docs", questions="list", output=nights.output.uri)
    texts = {text_hash(text): text for text in documents.values()}
    found = dict(zip(documents.values(), values, strict=True))
    plan = plan_of(documents, {"q": "How much?"}, value_type=value_type, follow_ups=asked)
    return nights.run_plan(plan, texts, job=job, retried=retried, values=found)["run_id"]
