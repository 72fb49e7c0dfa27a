"""`memagent plan`: what a run would read and cost; starts no engine."""

import logging
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from memagent_batch.cli.options import INPUT, MODEL
from memagent_batch.cli.settings import JobSettings, JsonCommand
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.logs import step
from memagent_batch.runs.bounds import Rates, endpoint_cost, estimate

log = logging.getLogger(__name__)


class PlanRun(JobSettings, JsonCommand):
    """Shows what `answer` would read and cost; starts no engine."""

    command = "memagent plan"
    common = (
        *(*INPUT, "output", *MODEL, "pool.replicas", "limit", "price_per_hour"),
        "tokens_per_second",
    )
    unused = (
        *(
            "rollouts",
            "log",
            "table_format",
            "simulated",
            "max_tokens",
            "max_cost",
            "max_hours",
            "max_failed_share",
            "accepted_unread",
        ),
        *("pool.cpus_per_replica", "pool.gpus_per_replica", "pool.readings_in_flight", "pool.turns_in_flight"),
    )
    examples = (
        "memagent plan --config tiny --documents texts/ --output out/ "
        '--ask "What is the access code of quiet-harbour?"',
        "memagent plan --config job.yaml --tokens-per-second 4000 --price-per-hour 2.5",
    )

    tokens_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Speed of one replica, for the hours."""

    def run(self) -> None:
        job, rates = self.job(), None
        if self.tokens_per_second is not None:
            rates = Rates(tokens_per_second=self.tokens_per_second, price_per_hour=self.price_per_hour or 0.0)
        elif self.price_per_hour:
            log.warning("no cost by the hour: price_per_hour needs --tokens-per-second, the speed of one replica")
        with step("checking inputs and model"):
            from memagent_batch.flows.check import check

            checked = check(job)
            from memagent_batch.flows.plan import plan_checked  # after the check, since Ray's import takes a second

        plan = plan_checked(checked)
        replicas = job.pool.most_replicas
        costs: dict[str, object] = {"estimate": estimate(plan, rates, replicas=replicas)} if rates else {}
        prices = (job.price_per_million_prompt_tokens, job.price_per_million_completion_tokens)
        if any(prices):
            costs["endpoint_cost"] = endpoint_cost(plan, *(price or 0.0 for price in prices))
        self.report({**plan, **costs}, plan_lines({**plan, **costs}))


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What a person reads of a plan and its costs."""
    asked = f"{quantity(plan['documents'], 'document')}, {quantity(plan['questions'], 'question')}"
    done = f"{plan['readings_done']:,} are done, {plan['readings_failed']:,} failed, {plan['readings_to_do']:,} to do"
    yield f"{asked}: {quantity(plan['readings'], 'reading')}; {done}"
    if plan["unreadable_documents"] or plan["missing_documents"]:
        yield f"no text: {plan['unreadable_documents']:,} can't be read, {plan['missing_documents']:,} are not there"
    if plan["largest_document"]:
        longest = plan["largest_document"]
        yield (
            f"to read: {quantity(plan['documents_to_read'], 'document')} of {plan['document_tokens']:,} tokens; "
            f"the longest is {longest['document_id']} with {longest['tokens']:,}"
        )
    most = plan["prompt_tokens_at_most"] + plan["follow_up_prompt_tokens_at_most"]
    written = plan["completion_tokens_at_most"] + plan["follow_up_completion_tokens_at_most"]
    prompt = f"{plan['prompt_tokens_at_least']:,} to {most:,} prompt tokens"
    yield f"it takes {quantity(plan['turns'], 'turn')}, {prompt}, and writes up to {written:,} tokens"
    for figures in (plan[name] for name in ("estimate", "endpoint_cost") if name in plan):
        yield ", ".join(f"{key.replace('_', ' ')} {value:,}" for key, value in figures.items())
    yield ""
    if plan["readings_to_do"]:
        yield "next: `memagent answer` with the same options; for hours and cost, --tokens-per-second and a price"
    else:
        yield "next: nothing is left to read; `memagent answer` with the same options writes the tables"
