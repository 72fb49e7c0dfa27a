"""How pages are made of templates: every value is text, escaped, with a sign for each character that can't be seen."""

import jinja2

from memagent_batch.evaluation.report.visible import shorten, visible

MAX_TEXT_CHARACTERS = 4_000
"""Of a question, answer, reference or response, characters that are shown."""
MAX_SHORT_CHARACTERS = 120
"""Of the same in a list."""


def page_environment(loader: jinja2.BaseLoader) -> jinja2.Environment:
    """Templates with the filters that all pages use."""
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        finalize=_shown_text,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "brief": brief,
        "cut": lambda text: shorten(text, characters=MAX_TEXT_CHARACTERS),
        "minute": lambda time: f"{time:%Y-%m-%d %H:%M}",
        "number": lambda number: f"{number:,}",
        "span": _span,
    }
    return environment


def brief(text: str) -> str:
    """The text on one line, cut in its middle."""
    return shorten(" ".join(text.split()), characters=MAX_SHORT_CHARACTERS)


def _shown_text(value: object) -> object:
    """Each value on its way into the page, before it is escaped."""
    return visible(value) if type(value) is str else value


def _span(start: int | None, end: int | None) -> str:
    return "–" if start is None or end is None else f"{start:,} – {end:,}"
