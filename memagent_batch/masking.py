"""Makes values fit to be shown or kept: URLs without secrets, secrets as hashes, texts without control characters.

Every error message, log line, table and manifest goes through here. Lowest layer, so that the errors can use it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

SECRET_NAME = re.compile(r"token(?!i[sz])|key|secret|passw|credential|auth|signature|^sig$", re.IGNORECASE)
"""Names of arguments and query parameters that hold secrets. `tokenizer` is none."""

NUMBER_NAME = re.compile(r"secret|passw|credential", re.IGNORECASE)
"""Names of secrets that are numbers: numbers under names such as `max_num_batched_tokens` are not secrets."""

SECRET_FIELDS = frozenset({"extra_body", "headers"})
"""Settings that are sent to a service as they are: all that they hold may be secret."""

WEB = frozenset({"http", "https"})
"""Schemes whose `?` begins a query. In the paths of others it is a wildcard, or part of a name."""

CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Azure's schemes, with a container where others have a user: `abfss://container@account/path`."""

CHAIN = re.compile(r"::(?=[A-Za-z][\w+.-]*(?:://|::))")
"""Where one file system of a chained fsspec URL ends and the next begins."""

USER = re.compile(r"([A-Za-z][\w+.-]*)://(?:([^/@:]*:.*@)|[^/]*@)", re.DOTALL)
"""A scheme with user and password, or with a user alone. A password may hold `/` and `@`: it ends at the last `@`."""

PARAMETER = re.compile(r"([?&;#])([^=&;#?]*=)?([^&;#?]*)")
"""A parameter of a query, or a fragment: what stands before it, its name with `=`, its value."""

URL = re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]*://\S+")
"""A URL inside a text, up to the next space."""

END = re.compile(r"[\"'`,.;:!)\]>}]*$")
"""Punctuation behind a URL."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""A value that is hidden already."""

CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that move a cursor, begin a line, turn the direction of text, or can't be encoded."""


def mask_url(uri: str) -> str:
    """A path or URL, chained ones part by part, without user, password, secret parameters and fragment.

    Of a web address no value of the query is shown: a presigned one is a key to what it leads to.
    """
    return "::".join(_masked_part(part) for part in CHAIN.split(uri))


def mask_urls(text: str) -> str:
    """A text with every URL in it by `mask_url`."""
    return URL.sub(_masked_match, text)


def printable(text: str) -> str:
    r"""A text on one line, with control characters and changes of direction as escapes such as `\n` and `\x1b`."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def redact_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, JSON values, as a run records them: URLs by `mask_url`, and in place of a secret its hash."""
    return {name: _redacted_value(name, value) for name, value in settings.items()}


def secret_hash(value: object) -> str:
    """Stands for a secret where it is to be seen whether it has changed."""
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return value
    return f"sha256:{hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()}"


def _masked_part(part: str) -> str:
    scheme, mark, _ = part.partition("://")
    if not mark:
        return part
    before = None
    while "@" in part and part != before:  # what is left when a user is gone may look like one again
        before, part = part, USER.sub(_without_user, part)
    start = re.search("[?#]", part)
    if start is None:
        return part
    query = PARAMETER.sub(lambda match: _parameter(match, is_web=scheme.lower() in WEB), part[start.start() :])
    return part[: start.start()] + query


def _without_user(match: re.Match[str]) -> str:
    scheme, with_password = match.groups()
    if scheme.lower() in CONTAINERS and with_password is None:
        return match[0]
    return f"{scheme}://"


def _parameter(match: re.Match[str], *, is_web: bool) -> str:
    before, name, value = match[1], match[2] or "", match[3]
    is_secret = is_web or SECRET_NAME.search(name.removesuffix("="))
    return f"{before}{name}{MASK}" if value and is_secret else match[0]


def _masked_match(match: re.Match[str]) -> str:
    end = END.search(match[0])
    start = end.start() if end else len(match[0])
    return mask_url(match[0][:start]) + match[0][start:]


def _redacted_value(name: str, value: object) -> object:
    pattern = NUMBER_NAME if isinstance(value, int | float) else SECRET_NAME
    if value and not isinstance(value, bool) and (name in SECRET_FIELDS or pattern.search(name)):
        return secret_hash(value)
    if isinstance(value, Mapping):
        return redact_settings(value)
    if isinstance(value, list):
        return [_redacted_value("", item) for item in value]
    return mask_url(value) if isinstance(value, str) else value
