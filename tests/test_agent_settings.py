"""An agent with other settings over its own: what a second reader takes over, and what it may not."""

from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig

OWN = {"base_url": "https://one.example/v1", "api_key": "first-key", "headers": {"x-team": "first-header"}}


def endpoint_of(agent: AgentConfig) -> tuple[str | None, dict[str, str]]:
    """Key and headers that requests of an agent have."""
    key, headers = agent.openai.api_key, agent.openai.headers
    return key.get_secret_value() if key else None, {name: each.get_secret_value() for name, each in headers.items()}


@pytest.mark.parametrize(
    ("openai", "key", "headers"),
    [
        ({}, "first-key", {"x-team": "first-header"}),
        ({"base_url": "https://one.example/v2"}, "first-key", {"x-team": "first-header"}),
        ({"base_url": "https://two.example/v1"}, None, {}),
        ({"base_url": "http://one.example/v1"}, None, {}),
        ({"base_url": "https://one.example:8443/v1"}, None, {}),
        ({"base_url": "https://two.example/v1", "api_key": "second-key"}, "second-key", {}),
        ({"base_url": "https://two.example/v1", "headers": {"api-key": "k"}}, None, {"api-key": "k"}),
    ],
)
def test_credentials_of_an_endpoint_go_to_no_other_server(
    openai: dict[str, Any], key: str | None, headers: dict[str, str]
) -> None:
    first = AgentConfig(engine="openai", model="m", openai=OWN)
    second = first.with_settings({"model": "n", "openai": openai})
    assert (second.model, *endpoint_of(second)) == ("n", key, headers)


def test_credentials_for_the_only_endpoint_of_two_readers_are_its_own() -> None:
    first = AgentConfig(engine="vllm", model="m", openai={"api_key": "key"})
    second = first.with_settings({"engine": "openai", "openai": {"base_url": "https://two.example/v1"}})
    assert endpoint_of(second) == ("key", {})
