"""One try at an OpenAI-compatible endpoint: where aiohttp's errors and the passing statuses become ours."""

import asyncio
import base64
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from pydantic import JsonValue
from pydantic_core import to_json
from yarl import URL

from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.errors import EngineDeadError, EngineStartError
from memagent_batch.loop.engines.openai.api import Response, error_message
from memagent_batch.loop.engines.openai.outage import Failure
from memagent_batch.masking import SECRET_NAME

CONNECT_SECONDS = 10.0
"""Longest wait for a connection; more means that nobody listens there."""

KEEP_ALIVE_SECONDS = 4.0
"""How long an idle connection is kept; vLLM's server closes it after 5 s, and a request must not meet that."""

MAX_HEADER_BYTES = 65_536
"""Longest line of a response's head; gateways send more than the 8 KiB that aiohttp takes."""

RETRIED_STATUSES = frozenset({408, 409, 429, *range(500, 600)}) - {501}
"""Statuses that another try can fix; 501 says that the server has no such address or method."""

NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]+)?")
DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]+)?)s)?(?:([0-9]+(?:\.[0-9]+)?)ms)?")
"""Forms of a pause in a header."""

ANTHROPIC_VERSION = "2023-06-01"
"""The version of Anthropic's API, the only one so far."""

TURNED_AWAY = 429
"""The status of an endpoint that takes no more requests for now, from nobody."""


class OpenAIClient:
    """Sends requests with the user's key and headers, and keeps both out of every message."""

    def __init__(self, settings: OpenAIConfig) -> None:
        """Checks the settings; nothing is sent yet.

        Raises:
            EngineStartError: the address, the key, a header or a proxy of the environment can't work.
        """
        try:
            url = URL(settings.base_url)
        except ValueError as error:
            raise EngineStartError(f"openai.base_url is not a URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise EngineStartError("openai.base_url must begin with http:// or https:// and a host")
        self._seconds = settings.timeout_seconds
        self._headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        is_anthropic = settings.api is EndpointApi.MESSAGES
        if key:
            self._add_header("x-api-key" if is_anthropic else "Authorization", key if is_anthropic else f"Bearer {key}")
        in_address = [value for name, value in url.query.items() if SECRET_NAME.search(name)]
        secrets = (key, *self._headers.values(), url.password, *in_address)
        self._secrets = [secret for secret in secrets if secret]
        for name, value in self._headers.items():
            _require_header(name, value, setting="api_key" if name not in settings.headers else f"headers.{name}")
        if url.user or url.password:  # goes before the key
            headers = {name: value for name, value in self._headers.items() if name.lower() != "authorization"}
            credentials = base64.b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
            self._headers = headers | {"Authorization": f"Basic {credentials}"}
        if is_anthropic:
            self._add_header("anthropic-version", ANTHROPIC_VERSION)
        self._url = url.with_user(None)
        self._proxy = _proxy(url)
        self._session: aiohttp.ClientSession | None = None

    def _add_header(self, name: str, value: str) -> None:
        """Adds a header unless the user sets it, in capitals or not."""
        if name.lower() not in map(str.lower, self._headers):
            self._headers[name] = value

    def open(self) -> None:
        """Opens the client on the running event loop."""
        # without a limit: one for each request in flight
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=_tls_context())
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
            proxy=self._proxy,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        """Closes the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | bytes | None = None,
        query: Mapping[str, str] | None = None,
        form: Callable[[], aiohttp.FormData] | None = None,
        longest_seconds: float | None = None,
        first_line: bool = False,
    ) -> Response | Failure:
        """One try: a whole response, or a failure that may pass.

        The path is one below the base URL, whose query is kept, or beside its end (`../version`). A body of bytes is
        JSON already; `form` makes what is sent in place of one. `timeout_seconds` bound all of it by default. With
        `first_line` nothing behind the first line of the response needs to come.
        """
        if self._session is None:
            raise EngineDeadError("the endpoint's client is not open: it was not started, or was stopped")
        seconds = min(longest_seconds or self._seconds, self._seconds)
        base = self._url.raw_path.rstrip("/")
        if path.startswith("../"):
            base, path = base.rpartition("/")[0], path.removeprefix("../")
        url = self._url.with_path(f"{base}/{path}", encoded=True, keep_query=True)
        url = url.update_query(query or {})
        data = form() if form else body if body is None or isinstance(body, bytes) else to_json(body)
        headers = None if body is None else {"Content-Type": "application/json"}
        began = time.perf_counter()
        try:
            async with (
                asyncio.timeout(seconds),
                self._session.request(method, url, data=data, headers=headers, allow_redirects=False) as answer,
            ):
                content = await (_first_line(answer) if first_line else answer.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return Failure(message=f"{self.name} can't be reached: {self._describe(error)}", concerns_all=True)
        except TimeoutError:
            return Failure(message=f"{self.name} gave no whole answer within {seconds:g} s", timed_out=True)
        except aiohttp.ClientError as error:
            return Failure(message=f"{self.name} cut the connection: {self._describe(error)}")
        response = Response(
            status_code=answer.status,
            content=content,
            elapsed_seconds=time.perf_counter() - began,
            request=f"{method} {url.raw_path}",
            date=answer.headers.get("Date", ""),
        )
        if response.status_code not in RETRIED_STATUSES:
            return response
        return Failure(
            message=self.refusal(response),
            retry_after_seconds=retry_after_seconds(answer.headers, now=datetime.now(UTC)),
            concerns_all=response.status_code == TURNED_AWAY,
            turned_away=response.status_code == TURNED_AWAY,
        )

    @property
    def name(self) -> str:
        """The endpoint for messages, without a password or query that its address may hold."""
        return f"the endpoint {self._url.with_query(None)}"

    def refusal(self, response: Response) -> str:
        """A response that is of no use, in the server's own words; secrets that it may repeat are taken out."""
        message = self._mask(error_message(response.content))
        return f"{self.name} answered {response.request} with {response.status_code}: {message}"

    def _describe(self, error: aiohttp.ClientError) -> str:
        reason: object = error
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = error.os_error
        elif isinstance(error, aiohttp.ClientResponseError):
            reason = error.message  # its text has the whole address
        return self._mask(f"{type(error).__name__}: {reason}")

    def _mask(self, message: str) -> str:
        for secret in self._secrets:
            message = message.replace(secret, "***")
        return message


async def _first_line(answer: aiohttp.ClientResponse) -> bytes:
    """A response up to the end of its first line, or somewhat further."""
    content = b""
    async for data in answer.content.iter_any():
        content += data
        if b"\n" in data:
            break
    return content


def retry_after_seconds(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The pause that a response asks for, in seconds; None if it asks for none that can be.

    It is a number of seconds, an HTTP date that is still to come, or `retry-after-ms`; else the longest time after
    which one of the limits that are used up is reset (`x-ratelimit-reset-...`).
    """
    value = headers.get("Retry-After", "").strip()
    if NUMBER.fullmatch(value):
        return float(value)
    if NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "").strip()):
        return float(milliseconds) / 1000
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        used_up = [limit for limit in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{limit}") == "0"]
        resets = [_duration_seconds(headers.get(f"x-ratelimit-reset-{limit}", "")) for limit in used_up]
        return max((seconds for seconds in resets if seconds is not None), default=None)
    seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return seconds if seconds > 0 else None


def _duration_seconds(text: str) -> float | None:
    """A duration such as `1m30s`, `250ms` or `12.5`, in seconds; None for anything else."""
    if NUMBER.fullmatch(text):
        return float(text)
    parts = DURATION.fullmatch(text)
    if not text or parts is None:
        return None
    return sum(float(number or 0) * unit for number, unit in zip(parts.groups(), (3600, 60, 1, 0.001), strict=True))


def _tls_context() -> ssl.SSLContext:
    """Trusts the authorities that SSL_CERT_FILE and SSL_CERT_DIR name, else those of certifi."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    return ssl.create_default_context(cafile=certifi.where())


def _proxy(url: URL) -> URL | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for an address."""
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(url.host or ""):
        return None
    proxy = URL(address if "://" in address else f"http://{address}")
    if proxy.scheme not in ("http", "https"):
        raise EngineStartError(
            f"the environment names a proxy of scheme {proxy.scheme} for openai.base_url, and only http and https are "
            f"supported; set {url.scheme.upper()}_PROXY to such a one, or add {url.host} to NO_PROXY"
        )
    return proxy


def _require_header(name: str, value: str, *, setting: str) -> None:
    if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
        raise EngineStartError(f"openai.{setting} holds characters that no HTTP header can carry; set it again")
