"""`memagent plan`: what a run would read and cost; starts no engine."""

from collections.abc import Iterator, Mapping
from typing import Any

from memagent_batch.cli.options import INPUT, MODEL, warn_of_untrained_policy
from memagent_batch.cli.settings import JobSettings, JsonCommand
from memagent_batch.logs import log_step
from memagent_batch.loop.texts.shares import quantity


class PlanRun(JobSettings, JsonCommand):
    """Shows what `answer` would read and cost; starts no engine."""

    command = "memagent plan"
    common = (*INPUT, "output", *MODEL, "pool.replicas", "limit")
    unused = (
        *(
            "rollouts",
            "log",
            "simulated",
            "max_tokens",
            "max_hours",
            "max_cost",
            "max_failed_share",
            "max_removed_share",
            "accepted_unread",
        ),
        *("pool.cpus_per_replica", "pool.gpus_per_replica"),
    )
    examples = (
        "memagent plan --config tiny --documents texts/ --output out/ "
        '--ask "What is the access code of quiet-harbour?"',
        "memagent plan --config job.yaml --json",
    )

    exact: bool = False
    """Count the tokens of all documents instead of estimating them from a random sample."""

    def run(self) -> None:
        log_step("checking inputs and model")
        from memagent_batch.run.flows.check import check

        job = self.job()
        checked = check(job)
        warn_of_untrained_policy(job.agent)
        from memagent_batch.run.flows.plan import plan_checked  # after the check, since Ray's import takes a second

        plan = plan_checked(checked, is_exact=self.exact)
        self.report(plan, plan_lines(plan))


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What a person reads of a plan."""
    asked = f"{quantity(plan['documents'], 'document')}, {quantity(plan['questions'], 'question')}"
    done = f"{plan['readings_done']:,} are done, {plan['readings_failed']:,} failed, {plan['readings_to_do']:,} to do"
    equal = plan["readings_of_equal_texts"]
    shared = f", {equal:,} of texts that other documents have too, which are read once" if equal else ""
    yield f"{asked}: {quantity(plan['readings'], 'reading')}; {done}{shared}"
    if plan["unreadable_documents"] or plan["missing_documents"]:
        yield f"no text: {plan['unreadable_documents']:,} can't be read, {plan['missing_documents']:,} are not there"
    if plan["largest_document"]:
        longest = plan["largest_document"]
        yield (
            f"to read: {quantity(plan['documents_to_read'], 'document')} of "
            f"{quantity(plan['document_tokens'], 'token')}; the longest is {longest['document_id']} with "
            f"{longest['tokens']:,}"
        )
    most = plan["prompt_tokens_at_most"] + plan["follow_up_prompt_tokens_at_most"]
    written = plan["completion_tokens_at_most"] + plan["follow_up_completion_tokens_at_most"]
    prompt = f"{plan['prompt_tokens_at_least']:,} to {most:,} prompt tokens"
    yield f"it takes {quantity(plan['turns'], 'turn')}, {prompt}, and writes up to {quantity(written, 'token')}"
    if plan["intervals"]:
        widths = [(high - low) / (2 * plan[name]) for name, (low, high) in plan["intervals"].items() if plan[name]]
        yield (
            f"estimated from {quantity(plan['documents_counted'], 'document')}, drawn at random by size: tokens and "
            f"turns are right to {max(widths, default=0.0):.1%} in 95 of 100 draws; --exact counts all"
        )
    if plan["prompt_tokens_shared"]:
        yield f"{plan['prompt_tokens_shared']:,} of them can come from the prefix cache: questions share chunks"
    yield from _cost_lines(plan)
    yield ""
    if plan["readings_to_do"]:
        yield "next: `memagent answer` with the same options"
    else:
        yield "next: nothing is left to read; `memagent answer` with the same options writes the tables"


def _cost_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan["batches"] is not None:
        usual, most = plan["batches"]
        bound = f", up to {most:,} if every chunk has news in every round" if most > usual else ""
        yield f"it sends about {usual:,} batch{'' if usual == 1 else 'es'}{bound}"
    if plan["cost"] is not None:
        low, high = plan["cost"]
        less = (
            f" less {plan['batch_discount']:.0%} for batches (prices.batch_discount)" if plan["batch_discount"] else ""
        )
        yield f"by the prices of the job{less}, that costs {low:,.2f} to {high:,.2f}"
    if plan["advice"]:
        yield plan["advice"]
