"""The files of a site as text: templates in, bytes out. No page runs or loads anything but what its policy names."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from memagent_batch.evaluation.report.templates import page_environment
from memagent_batch.evaluation.report.visible import visible
from memagent_batch.pages.values import percent, run_time

_HERE = files("memagent_batch.pages")
_UNSAFE_IN_JSON = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""Characters of JSON that could end the element that holds it, or that older script engines end a line at."""


def render(template: str, values: Mapping[str, Any], *, script: str | None = None, frames: bool = False) -> bytes:
    """A page, UTF-8.

    Args:
        template: name of its template.
        values: what the template takes.
        script: name of the file of its one script; None where it has none.
        frames: whether it may show other pages of the same place in frames.
    """
    style = stylesheet()
    program = None if script is None else (_HERE / script).read_text(encoding="utf-8")
    text = (
        _environment()
        .get_template(template)
        .render(
            **values,
            style=Markup(style),
            script=Markup(program or ""),
            policy=content_policy(style=style, script=program, frames=frames),
        )
    )
    return text.encode("utf-8", errors="backslashreplace")


@cache
def stylesheet() -> str:
    """The one style of all pages: that of the evaluation's report, and what these pages add."""
    report = files("memagent_batch.evaluation") / "report" / "page.css"
    return report.read_text(encoding="utf-8") + (_HERE / "pages.css").read_text(encoding="utf-8")


def content_policy(*, style: str, script: str | None, frames: bool) -> str:
    """The Content-Security-Policy: nothing but this style and this script, by their hashes; no request to anywhere."""
    parts = ["default-src 'none'", "img-src data:", f"style-src {_source(style)}"]
    if script is not None:
        parts.append(f"script-src {_source(script)}")
    if frames:
        parts.append("frame-src 'self' file:")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def inert_json(value: Any) -> Markup:
    """JSON inside a `script` element that is data: no text of it can end the element, and none is unseen."""
    text = json.dumps(_seen(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_UNSAFE_IN_JSON))


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.ChoiceLoader(
        [
            jinja2.PackageLoader("memagent_batch.pages", "."),
            jinja2.PackageLoader("memagent_batch.evaluation", "report"),
        ]
    )
    environment = page_environment(loader)
    environment.filters |= {"inert_json": inert_json, "percent": percent, "run_time": run_time}
    return environment


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _seen(value: Any) -> Any:
    match value:
        case str():
            return visible(value)
        case dict():
            return {name: _seen(each) for name, each in value.items()}
        case list() | tuple():
            return [_seen(each) for each in value]
        case _:
            return value
