"""The card of a finished run: what was asked, of what, by which weights, how good it is, and how to repeat it."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.texts.escapes import escaped
from memagent_batch.masking import DIGEST, mask_url, printable
from memagent_batch.review.estimate_files import ReviewEstimates
from memagent_batch.runs.history import PastRun

CARD_FILE = "card.md"
SHOWN_CHARACTERS = 300
"""Characters of a question or a place."""
SHOWN_QUESTIONS = 10
SHOWN_ESTIMATES = 20
READER_FIELDS = ("model", "model_sha256", "weights_version", "tokenizer_sha256", "prompt_set", "prompt_set_sha256")
PLACES = frozenset({"output", "documents", "questions", "ask"})
"""Settings that the command to repeat a run always shows."""


def card(past: PastRun, *, estimates: Sequence[ReviewEstimates]) -> str:
    """The card of a finished run, Markdown."""
    manifest = past.manifest
    documents = manifest["settings"].get("documents") or []
    return _template().render(
        manifest=manifest,
        counts=manifest["counts"],
        totals=manifest["totals"],
        questions=past.questions.to_pylist(),
        places=[mask_url(place) for place in ([documents] if isinstance(documents, str) else documents)],
        num_documents=past.plan.num_rows,
        num_unusable=sum(part["num_unusable"] for part in manifest["parts"]),
        num_unreadable=past.plan.num_rows - past.plan["error"].null_count,
        estimates=estimates,
        job=json.dumps(_changed(manifest["settings"]), indent=2).replace("`", "\\u0060"),  # else it could end the block
        reader_fields=READER_FIELDS,
        shown_questions=SHOWN_QUESTIONS,
        shown_estimates=SHOWN_ESTIMATES,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("memagent_batch.audit", "."),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "inline": _inline,
        "json": lambda value: json.dumps(value, sort_keys=True, default=str),
        "number": lambda value: f"{value:,}",
    }
    return environment.get_template("card.md.j2")


def _inline(text: object) -> str:
    """A text that may come from anyone: one line, no markup, no character that can't be seen."""
    whole = str(text)
    cut = whole if len(whole) <= SHOWN_CHARACTERS else f"{whole[:SHOWN_CHARACTERS]} …"
    return escaped(printable(cut))


def _changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are not at their defaults, without secrets: a record has only their hashes."""
    defaults = {**_defaults(AgentConfig), **_defaults(JobConfig)}
    return {
        name: changed
        for name, value in settings.items()
        if (changed := _difference(value, None if name in PLACES else defaults.get(name))) not in (None, {}, [], "")
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
