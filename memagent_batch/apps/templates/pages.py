"""How pages are made of templates: every value is text, escaped, with a sign for each character that can't be seen."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from memagent_batch.loop.texts.escapes import escaped, shorten, visible
from memagent_batch.loop.texts.shares import percent, quantity

MAX_TEXT_CHARACTERS = 4_000
"""Of a question, answer, reference or response, characters that are shown."""
MAX_SHORT_CHARACTERS = 240
"""Of the same in a list."""
_UNSAFE_IN_JSON = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""Characters of JSON that could end the element that holds it, or that older script engines end a line at."""


def page_environment(*folders: tuple[str, str]) -> jinja2.Environment:
    """The templates of all pages and those in folders of packages, with the filters that all pages use."""
    loaders = [jinja2.PackageLoader(*each) for each in (*folders, ("memagent_batch.apps.templates", "."))]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "brief": brief,
        "inert_json": inert_json,
        "cut": lambda text: shorten(text, characters=MAX_TEXT_CHARACTERS),
        "number": lambda number: f"{number:,}",
        "quantity": quantity,
        "span": lambda start, end: "–" if start is None or end is None else f"{start:,} – {end:,}",
    }
    return environment


def markdown_template(package: str, name: str) -> jinja2.Template:
    """A Markdown page; it has to escape each text of users, documents and models."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "escaped": escaped,
        "number": lambda value: f"{value:,}",
        "percent": percent,
        "quantity": quantity,
    }
    return environment.get_template(name)


@cache
def page_file(package: str, name: str) -> str:
    """A style or script that lies beside the templates of a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def page_style(package: str, name: str) -> str:
    """The style of all pages, followed by a package's own."""
    return page_file("memagent_batch.apps.templates", "page.css") + page_file(package, name)


def page_script(package: str, *names: str) -> str:
    """Returns what all scripts of pages share, followed by scripts of a package."""
    return page_file("memagent_batch.apps.templates", "browser.js") + "".join(
        page_file(package, name) for name in names
    )


def page_bytes(
    template: jinja2.Template,
    values: Mapping[str, Any],
    *,
    style: str | None,
    script: str | None,
    frames: bool = False,
    images: bool = False,
) -> bytes:
    """A page that runs and loads nothing but one style and one script, UTF-8.

    The template shows `policy`, the Content-Security-Policy, `style` and `script`. `frames`: it may show other pages of
    the same place in frames. `images`: it may show images of the same place.
    """
    image_places = "data: 'self' file:" if images else "data:"
    policy = ["default-src 'none'", f"img-src {image_places}"]  # nothing but this style and script, by their hashes
    for source, text in (("style-src", style), ("script-src", script)):
        if text is not None:
            policy.append(f"{source} 'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'")
    if frames:
        policy.append("frame-src 'self' file:")
    values = {**values, "policy": "; ".join([*policy, "base-uri 'none'", "form-action 'none'"])}
    text = template.render(**values, style=Markup(style or ""), script=Markup(script or ""))
    return text.encode("utf-8", errors="backslashreplace")


def frame_page(environment: jinja2.Environment, data: Any) -> bytes:
    """A page that hands its data to the page that shows it in a frame."""
    script = page_file("memagent_batch.apps.templates", "frame.js")
    return page_bytes(environment.get_template("frame.html"), {"data": data}, style=None, script=script)


def inert_json(value: Any) -> Markup:
    """JSON inside a `script` element that is data: no text can end the element or has characters that can't be seen."""
    text = json.dumps(_seen(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_UNSAFE_IN_JSON))


def brief(text: str) -> str:
    """The text on one line, cut in its middle."""
    return shorten(" ".join(text.split()), characters=MAX_SHORT_CHARACTERS)


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
