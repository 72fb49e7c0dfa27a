"""The card of a run, `card.md`: what was asked, of what, by which weights, how good it is, and where it fails."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason
from memagent_batch.masking import DIGEST, shown
from memagent_batch.runs.history.history import PastRun
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record.estimates import ReviewEstimates
from memagent_batch.runs.record.evaluations import (
    ReaderEvaluation,
)
from memagent_batch.runs.record.measured import estimate_lines, evaluation_lines, inline
from memagent_batch.runs.tables.part_report import ReasonRow

CARD_FILE = "card.md"
"""Name of the card in the record of a run."""
SHOWN_QUESTIONS = 10
OF_READER = ("model", "model_sha256", "weights_version", "tokenizer_sha256", "prompt_set", "prompt_set_sha256")
SHOWN_IN_PART = frozenset({"truncate", "retrieve"})
"""Policies that answer from one prompt."""
OF_PLACES = frozenset({"output", "documents", "questions", "ask"})
"""Knobs that the command to repeat a run shows whatever they are."""


def card(past: PastRun, *, estimates: Sequence[ReviewEstimates], evaluations: Sequence[ReaderEvaluation] = ()) -> str:
    """The card of a finished run, Markdown.

    Args:
        past: The run.
        estimates: What reviews of the output say, the latest first.
        evaluations: What evaluations found of its readers, the latest first.
    """
    manifest = past.manifest
    sections: dict[str, Iterator[str]] = {
        "What was asked": _asked(past),
        "Of what": _documents(past),
        "By what": _reader(manifest),
        "What came out": _counts(manifest),
        "How good it is": chain(estimate_lines(manifest, estimates), evaluation_lines(manifest, evaluations)),
        "Where it fails": _failures(past),
        "Limits": _limits(manifest),
        "How to repeat it": _command(manifest),
    }
    lines = [f"# Scan {inline(manifest['run_id'])}", "", f"{manifest['started_at']} to {manifest['finished_at']}."]
    for title, section in sections.items():
        lines += ["", f"## {title}", "", *section]
    return "\n".join(lines) + "\n"


def _asked(past: PastRun) -> Iterator[str]:
    rows = past.questions.slice(0, SHOWN_QUESTIONS).to_pylist()
    for row in rows:
        kind = f" ({inline(row['answer_type'])})" if row.get("answer_type") else ""
        yield f"- {inline(row['question_id'])}{kind}: {inline(row['question'])}"
    if past.questions.num_rows > len(rows):
        yield f"- and {past.questions.num_rows - len(rows):,} more"


def _documents(past: PastRun) -> Iterator[str]:
    manifest = past.manifest
    named = manifest["settings"].get("documents") or []
    places = [inline(shown(place)) for place in ([named] if isinstance(named, str) else named)]
    yield f"- Documents: {past.plan.num_rows:,}, of {', '.join(places) or 'a program'}"
    for name, version in manifest["tables"].items():
        yield f"- Table {inline(name)}: version {inline(version)}"
    if "again" in manifest:
        again = manifest["again"]
        what = f"{again['pairs']:,} documents with a question of {inline(again['output'])}, run {again['run_id']}"
        yield f"- A second pass over {what}, where {inline(again['where'])}"
    if "sample" in manifest:
        sample = manifest["sample"]
        yield f"- A sample: {sample['taken']:,} of {sample['documents']:,} documents, seed {sample['seed']}"
    where = manifest["settings"].get("input", {}).get("where")
    if where:
        yield f"- Rows where {inline(where)}"


def _reader(manifest: Manifest) -> Iterator[str]:
    settings = manifest["settings"]
    yield from _parts_of_reader(manifest["reader"])
    if settings.get("closing", {}).get("evidence"):
        yield "- Evidence was asked for after each answer"
    yield f"- reader_fingerprint: {manifest['reader_fingerprint']}"
    yield f"- {', '.join(f'{inline(name)} {inline(version)}' for name, version in manifest['versions'].items())}"


def _parts_of_reader(reader: Mapping[str, Any]) -> Iterator[str]:
    for name in OF_READER:
        if reader.get(name):
            yield f"- {name}: {inline(str(reader[name]))}"
    for name in ("policy", "sampling", "engine"):
        if reader.get(name):
            yield f"- {name}: {inline(json.dumps(reader[name], sort_keys=True, default=str))}"


def _counts(manifest: Manifest) -> Iterator[str]:
    counts, totals = manifest["counts"], manifest["totals"]
    yield "| asked | ok | failed | not read | turns | prompt tokens | completion tokens |"
    yield "|---|---|---|---|---|---|---|"
    numbers = [counts["asked"], counts["ok"], counts["failed"], counts["not_read"], totals["num_turns"]]
    numbers += [totals["num_prompt_tokens"], totals["num_completion_tokens"]]
    yield f"| {' | '.join(f'{number:,}' for number in numbers)} |"
    yield ""
    yield f"{manifest['seconds']:,.0f} seconds. Turns and tokens are of all rows, those of earlier runs included."


def _failures(past: PastRun) -> Iterator[str]:
    manifest, counts = past.manifest, past.manifest["counts"]
    unusable = sum(part.get("num_unusable") or 0 for part in manifest["parts"])
    unreadable = past.plan.num_rows - past.plan["error"].null_count
    yield f"- Readings that failed: {counts['failed']:,}{_reasons(manifest['reasons'][Status.FAILED])}"
    yield f"- Readings that were not read: {counts['not_read']:,}{_reasons(manifest['reasons'][Status.NOT_READ])}"
    yield f"- Answered readings without an answer in the response, or of another type than was asked for: {unusable:,}"
    yield f"- Documents that can't be read or are not there: {unreadable:,}"
    if "sample" in manifest:
        sample = manifest["sample"]
        yield f"- Documents outside the sample, which were not read: {sample['documents'] - sample['taken']:,}"


def _reasons(rows: Sequence[ReasonRow]) -> str:
    reasons = [Reason(**row) for row in rows]
    texts = [f"{each.num_readings:,} {each.error_type}: {inline(each.error_message)}" for each in reasons]
    return f" ({'; '.join(texts)})" if texts else ""


def _limits(manifest: Manifest) -> Iterator[str]:
    yield from _limits_of_reader(manifest["reader"])
    yield "- A confidence is a probability given the notes, not given the document."


def _limits_of_reader(reader: Mapping[str, Any]) -> Iterator[str]:
    """What a reader can't do, by its parts in the manifest."""
    policy, sampling, engine = (reader.get(name, {}) for name in ("policy", "sampling", "engine"))
    if policy.get("kind") in SHOWN_IN_PART:
        yield "- The model was shown a part of each long document. What stands elsewhere, it does not know."
    else:
        yield "- Answers are given from the model's notes. What it did not note, it does not know."
    if sampling.get("temperature", 0) > 0:
        yield "- Answers are drawn: another seed gives others."
    else:
        yield "- Decoding is greedy: the same reader gives the same answers, as far as its engine is reproducible."
    if engine.get("kind") == "vllm" and not engine.get("reproducible"):
        yield "- On a GPU single tokens may depend on what else was in flight (`vllm.reproducible` is off)."
    if engine.get("kind") == "openai":
        yield "- An endpoint read it, whose weights can't be hashed from here."


def _command(manifest: Manifest) -> Iterator[str]:
    """The knobs as a job file: JSON, which is YAML too. A backtick in it could end the block."""
    settings = _changed(manifest["settings"])
    yield "With this as `job.yaml`, and secrets in the environment: `memagent answer --config job.yaml`"
    yield ""
    yield "```yaml"
    yield json.dumps(settings, indent=2).replace("`", "\\u0060")
    yield "```"
    yield ""
    yield "`memagent verify OUTPUT` checks that the tables are those of this run."


def _changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs that are not at their defaults, without secrets: a record has only their hashes."""
    defaults = {**_defaults(AgentConfig), **_defaults(JobConfig)}
    return {
        name: changed
        for name, value in settings.items()
        if (changed := _difference(value, None if name in OF_PLACES else defaults.get(name))) not in (None, {}, [], "")
    }


def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    fields = kind.model_fields.items()
    return {
        name: to_jsonable_python(each.get_default(call_default_factory=True), fallback=str) for name, each in fields
    }


def _difference(value: Any, default: Any) -> Any:
    if value == default or (isinstance(value, str) and DIGEST.fullmatch(value)):
        return None
    if isinstance(value, dict) and isinstance(default, dict):
        below = {name: _difference(each, default.get(name)) for name, each in value.items()}
        return {name: each for name, each in below.items() if each is not None}
    return value
