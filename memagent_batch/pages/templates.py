"""The files of a site as text: templates in, bytes out. No page runs or loads anything but what its policy names."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from memagent_batch.domain.texts.shares import percent
from memagent_batch.evaluation.report.templates import inert_json, page_bytes, page_environment
from memagent_batch.evaluation.report.visible import visible
from memagent_batch.pages.values import run_time

_HERE = files("memagent_batch.pages")


def render(template: str, values: Mapping[str, Any], *, script: str | None = None, frames: bool = False) -> bytes:
    """A page, UTF-8.

    Args:
        template: name of its template.
        values: what the template takes.
        script: name of the file of its one script; None where it has none.
        frames: whether it may show other pages of the same place in frames.
    """
    program = None if script is None else (_HERE / script).read_text(encoding="utf-8")
    return page_bytes(_environment().get_template(template), values, style=stylesheet(), script=program, frames=frames)


@cache
def stylesheet() -> str:
    """The one style of all pages: that of the evaluation's report, and what these pages add."""
    report = files("memagent_batch.evaluation") / "report" / "page.css"
    return report.read_text(encoding="utf-8") + (_HERE / "pages.css").read_text(encoding="utf-8")


def seen_json(value: Any) -> Markup:
    """`inert_json`, with a sign for each character that can't be seen."""
    return inert_json(_seen(value))


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.ChoiceLoader(
        [
            jinja2.PackageLoader("memagent_batch.pages", "."),
            jinja2.PackageLoader("memagent_batch.evaluation", "report"),
        ]
    )
    environment = page_environment(loader)
    environment.filters |= {
        "inert_json": seen_json,
        "percent": percent,
        "run_time": run_time,
    }
    return environment


def _seen(value: Any) -> Any:
    """The value with a sign for each character of its texts that can't be seen."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {name: _seen(each) for name, each in value.items()}
        case list() | tuple():
            return [_seen(each) for each in value]
        case _:
            return value
