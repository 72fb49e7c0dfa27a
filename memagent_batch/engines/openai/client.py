"""One try at an OpenAI-compatible endpoint: where httpx's errors and the passing statuses become ours."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import httpx
from pydantic import JsonValue

from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.engines.openai.outage import Failure
from memagent_batch.engines.openai.pace import LIMITS, parse_reset
from memagent_batch.engines.openai.protocol import error_message
from memagent_batch.engines.openai.retries import is_retried, parse_retry_after
from memagent_batch.errors import EngineDeadError, EngineStartError
from memagent_batch.masking import SECRET_NAME

CONNECT_SECONDS = 10.0
"""Longest wait for a connection; more means that nobody listens there."""

TURNED_AWAY = 429
"""The status of an endpoint that takes no more requests for now, from nobody."""


class OpenAIClient:
    """Sends requests with the user's key and headers, and keeps both out of every message."""

    def __init__(self, settings: OpenAIConfig) -> None:
        """Opens the client; nothing is sent yet.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        self._url = _require_url(settings.base_url)
        self._seconds = settings.timeout_seconds
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        if key:
            headers = {"Authorization": f"Bearer {key}"} | headers
        in_address = [value for name, value in self._url.params.multi_items() if SECRET_NAME.search(name)]
        secrets = (key, *headers.values(), self._url.password, *in_address)
        self._secrets = [secret for secret in secrets if secret]
        for name, value in headers.items():
            _require_header(name, value, knob="api_key" if name not in settings.headers else f"headers.{name}")
        self._client: httpx.AsyncClient | None = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),  # as many as readings are in flight,
        )

    async def close(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | None = None,
        longest_seconds: float | None = None,
    ) -> httpx.Response | Failure:
        """One try: a whole response, or a failure that may pass.

        Args:
            method: HTTP method.
            path: below the base URL, without a slash before it; a query of the base URL is kept.
            body: sent as JSON.
            longest_seconds: bounds the whole try, from its connection to its last byte; `timeout_seconds` by default.
        """
        if self._client is None:
            raise EngineDeadError("the endpoint's client is not open: it was stopped")
        folder, mark, query = self._url.raw_path.partition(b"?")
        url = self._url.copy_with(raw_path=folder.rstrip(b"/") + b"/" + path.encode() + mark + query)
        seconds = min(longest_seconds or self._seconds, self._seconds)
        try:
            async with asyncio.timeout(seconds):
                response = await self._client.request(method, url, json=body)
        except TimeoutError:
            return Failure(message=f"{self.name} gave no whole answer within {seconds:g} s")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Failure(message=f"{self.name} can't be reached: {self._text(error)}", concerns_all=True)
        except httpx.RequestError as error:
            return Failure(message=f"{self.name} cut the connection: {self._text(error)}")
        if not is_retried(response.status_code):
            return response
        return Failure(
            message=self.refusal(response),
            retry_after_seconds=_retry_after(response.headers),
            concerns_all=response.status_code == TURNED_AWAY,
            turned_away=response.status_code == TURNED_AWAY,
        )

    @property
    def name(self) -> str:
        """The endpoint for messages, without a password or query that its address may hold."""
        return f"the endpoint {self._url.copy_with(userinfo=b'', query=None)}"

    def refusal(self, response: httpx.Response) -> str:
        """A response that is none of use, in the server's own words; secrets that it may repeat are taken out."""
        return f"{self.name} answered {response.status_code}: {self._masked(error_message(response.content))}"

    def _text(self, error: httpx.RequestError) -> str:
        return self._masked(f"{type(error).__name__}: {error}")

    def _masked(self, message: str) -> str:
        for secret in self._secrets:
            message = message.replace(secret, "***")
        return message


def _retry_after(headers: httpx.Headers) -> float | None:
    """The pause that a response asks for, seconds: its own words, else the reset of a limit that is spent."""
    asked = parse_retry_after(headers.get("Retry-After"), now=datetime.now(UTC))
    if asked is not None:
        return asked
    if headers.get("retry-after-ms", "").isdecimal():
        return float(headers["retry-after-ms"]) / 1000
    spent = [name for name in LIMITS if headers.get(f"x-ratelimit-remaining-{name}") == "0"]
    resets = [parse_reset(headers.get(f"x-ratelimit-reset-{name}")) for name in spent]
    return max((seconds for seconds in resets if seconds is not None), default=None)


def _require_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise EngineStartError(f"openai.base_url is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise EngineStartError("openai.base_url must begin with http:// or https:// and a host")
    return url


def _require_header(name: str, value: str, *, knob: str) -> None:
    if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
        raise EngineStartError(f"openai.{knob} holds characters that no HTTP header can carry; set it again")
