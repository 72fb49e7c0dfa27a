"""What the client of an endpoint takes from the environment, and what it sends: over real sockets."""

import base64
import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.errors import EngineStartError
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.client import OpenAIClient, retry_after_seconds
from memagent_batch.loop.engines.openai.outage import Failure
from tests.engines.scripted_server import Reply, Script, scripted_server

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")
SERVED = Reply(body=json.dumps({"data": []}).encode())
PASSWORD = "p-secret"
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment without proxies and certificates."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@asynccontextmanager
async def client(base_url: str, **settings: Any) -> Any:
    opened = OpenAIClient(OpenAIConfig(base_url=base_url, **settings))
    opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def ask(script: Script, **settings: Any) -> Response | Failure:
    async with client(settings.pop("base_url", script.base_url), **settings) as opened:
        answer: Response | Failure = await opened.send("GET", "models")
        return answer


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
async def test_proxy_of_the_environment_gets_the_request_with_its_own_credentials(
    name: str, environment: pytest.MonkeyPatch
) -> None:
    with scripted_server() as proxy:
        environment.setenv(name, proxy.base_url.replace("://", f"://user:{PASSWORD}@").removesuffix("/v1"))
        answer = await ask(proxy, base_url="http://endpoint.invalid/v1", api_key="sk-1")
    assert isinstance(answer, Response)
    assert proxy.paths == ["http://endpoint.invalid/v1/models"]
    assert proxy.headers[0]["Authorization"] == "Bearer sk-1"
    assert proxy.headers[0]["Proxy-Authorization"] == basic("user", PASSWORD)


@pytest.mark.parametrize("excepted", ["127.0.0.1", "*"])
async def test_address_of_no_proxy_is_asked_directly(excepted: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("http_proxy", "http://127.0.0.1:1")
    environment.setenv("no_proxy", excepted)
    with scripted_server() as script:
        assert isinstance(await ask(script), Response)
    assert script.paths == ["/v1/models"]


async def test_proxy_that_is_away_is_an_endpoint_that_is_away_and_its_password_is_in_no_message(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("http_proxy", f"http://user:{PASSWORD}@127.0.0.1:1")
    with scripted_server() as script:
        answer = await ask(script)
    assert isinstance(answer, Failure)
    assert answer.concerns_all
    assert PASSWORD not in answer.message


def test_proxy_of_another_scheme_is_refused_with_what_to_set(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("https_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(EngineStartError, match=r"socks5.*HTTPS_PROXY.*add endpoint\.invalid to NO_PROXY"):
        OpenAIClient(OpenAIConfig(base_url="https://endpoint.invalid/v1"))


async def test_credentials_of_the_address_go_before_the_key() -> None:
    with scripted_server() as script:
        await ask(script, base_url=script.base_url.replace("://", f"://us%40er:{PASSWORD}@"), api_key="sk-1")
    assert script.headers[0]["Authorization"] == basic("us@er", PASSWORD)


async def test_credentials_of_netrc_are_not_sent(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login user password {PASSWORD}\n")
    environment.setenv("NETRC", str(tmp_path / "netrc"))
    with scripted_server() as script:
        await ask(script, api_key="sk-1")
        await ask(script)
    assert [headers.get("Authorization") for headers in script.headers] == ["Bearer sk-1", None]


async def test_redirect_is_not_followed() -> None:
    with scripted_server() as script:
        script.models = Reply(status=307, headers={"Location": "/elsewhere"})
        answer = await ask(script, api_key="sk-1")
    assert isinstance(answer, Response)
    assert (answer.status_code, script.paths) == (307, ["/v1/models"])


async def test_long_header_of_a_gateway_is_taken() -> None:
    with scripted_server() as script:
        script.models = Reply(body=SERVED.body, headers={"Content-Security-Policy": "a" * 20_000})
        assert isinstance(await ask(script), Response)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(signed.public_bytes(pem) + secret)
    return path


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[Script]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with scripted_server(tls=context) as script:
        yield script


async def test_certificate_of_ssl_cert_file_is_trusted(
    tls_server: Script, certificate: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("SSL_CERT_FILE", str(certificate))
    assert isinstance(await ask(tls_server), Response)


async def test_unknown_certificate_is_not_trusted_and_nothing_is_sent(tls_server: Script) -> None:
    answer = await ask(tls_server)
    assert isinstance(answer, Failure)
    assert answer.concerns_all
    assert "CERTIFICATE_VERIFY_FAILED" in answer.message
    assert tls_server.paths == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 ", "retry-after-ms": "9"}, 0.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "20.5"}, 20.5),
        ({"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "-3"}, None),
        ({"x-ratelimit-reset-requests": "1m30.5s", "x-ratelimit-remaining-requests": "0"}, 90.5),
        ({"x-ratelimit-reset-tokens": "250ms", "x-ratelimit-remaining-tokens": "0"}, 0.25),
        ({"x-ratelimit-reset-tokens": "6m", "x-ratelimit-remaining-tokens": "12"}, None),
        ({"x-ratelimit-reset-tokens": "soon", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"Retry-After": "soon", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "-3"}, None),
    ],
)
def test_retry_after_in_seconds_as_a_date_or_in_milliseconds_is_read(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_seconds(headers, now=NOW) == seconds


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
