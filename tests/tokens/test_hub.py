import http.server
from collections.abc import Iterator
from threading import Thread

import huggingface_hub.constants
import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.loop.tokens import pretrained
from memagent_batch.loop.tokens.pretrained import hub_failure
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from memagent_batch.run.wiring import make_tokenizer


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pretrained, "HUB_PAUSE_SECONDS", 0.0)
    hub_failure.cache_clear()
    yield
    hub_failure.cache_clear()


def test_hub_name_where_the_hub_is_away_is_refused_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SettingsError, match=r"no folder owner/name here.*http://127\.0\.0\.1:1: .*refused.*; give"):
        load_tokenizer("owner/name")


def test_hub_name_in_offline_mode_is_refused_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match=r"can't be reached \(HF_HUB_OFFLINE is set\); give a model folder"):
        load_tokenizer("owner/name")


@pytest.mark.parametrize(
    ("agent", "end"),
    [
        (AgentConfig(model="reader-136m"), r"^model: .*; did you mean reader-135m\?$"),
        (AgentConfig(tokenizer="tinny"), r"^tokenizer: .*; did you mean tiny\?$"),
        (AgentConfig(model="owner/another-7b"), "give a model folder$"),
    ],
)
def test_name_like_that_of_a_bundled_model_is_refused_with_that_name(
    agent: AgentConfig, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match=end):
        make_tokenizer(agent)


def test_folder_where_the_hub_is_away_is_loaded(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    assert load_tokenizer(tiny_model).encode("a")


def test_hub_that_answers_anything_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub_failure() is None
        server.shutdown()
