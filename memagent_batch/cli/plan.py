"""`memagent plan`: what a run would read and cost; starts no engine."""

import json
import logging
from typing import Annotated

from pydantic import Field

from memagent_batch.cli.options import INPUT, MODEL
from memagent_batch.cli.settings import Command, JobSettings
from memagent_batch.logs import step
from memagent_batch.runs.bounds import Rates, endpoint_cost, estimate

log = logging.getLogger(__name__)


class PlanRun(JobSettings, Command):
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
        print(json.dumps({**plan, **costs}, indent=2, ensure_ascii=False))
