import os
import shutil
from pathlib import Path

import pytest

from memagent_batch.config.agent import AgentConfig, BreakAt, PolicyConfig
from memagent_batch.config.engines import OpenAIConfig, VllmConfig
from memagent_batch.errors import RunFailedError
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.run.wiring import ReaderIdentity, identify_reader, require_reader


def fingerprint_of(**vllm: str | bool) -> str:
    agent = AgentConfig(vllm=VllmConfig.model_validate(vllm))
    return identify_reader(agent).fingerprint


def test_reader_fingerprint_of_other_weights_differs_in_the_model_alone(tmp_path: Path) -> None:
    shutil.copytree(TINY_MODEL, tmp_path / "tiny")
    with (tmp_path / "tiny" / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"!")
    models = ("tiny", str(tmp_path / "tiny"))
    parts = [identify_reader(AgentConfig(model=model)).parts for model in models]
    assert {name for name in parts[0] if parts[0][name] != parts[1][name]} == {"model", "model_sha256"}


def test_reader_keeps_its_tokeniser_after_an_edit_and_is_refused_with_other_weights(tmp_path: Path) -> None:
    model = shutil.copytree(TINY_MODEL, tmp_path / "tiny")
    agent = AgentConfig(model=str(model))
    reader = identify_reader(agent)
    template = model / "chat_template.jinja"
    template.write_text(template.read_text() + "edited")
    kept = require_reader(agent, fingerprint=reader.fingerprint)
    assert kept.tokenizer.chat_template.sha256 == reader.parts["chat_template_sha256"]
    assert identify_reader(agent).fingerprint != reader.fingerprint, "a new run reads with what is there now"
    with (model / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"!")
    with pytest.raises(RunFailedError, match="edited since the run began, or another one lies on this node"):
        require_reader(agent, fingerprint=reader.fingerprint)


def test_reader_fingerprint_names_how_sentences_are_found_where_chunks_close_at_them() -> None:
    cuts = {at: identify_reader(AgentConfig(policy=PolicyConfig(break_at=at))) for at in BreakAt}
    assert {at for at, reader in cuts.items() if "sentences" in reader.parts} == {*BreakAt} - {BreakAt.LENGTH}
    assert len({reader.fingerprint for reader in cuts.values()}) == len(BreakAt)


def test_reader_fingerprint_of_the_batch_invariant_mode_is_another_one_and_without_it_as_before() -> None:
    assert len({fingerprint_of(), fingerprint_of(reproducible=True), fingerprint_of(dtype="float32")}) == 3
    assert "reproducible" not in identify_reader(AgentConfig()).parts["engine"]


def test_reader_fingerprint_of_an_endpoint_covers_the_fields_of_its_requests() -> None:
    agent = AgentConfig(engine="openai")
    other = agent.model_copy(update={"openai": OpenAIConfig(extra_body={"min_p": 0.1})})
    readers = [identify_reader(each) for each in (agent, other)]
    assert readers[0].fingerprint != readers[1].fingerprint
    assert readers[0].parts["engine"]["neutral_fields"]["repetition_penalty"] == 1


def test_reader_fingerprint_counts_a_secret_that_its_parts_do_not_show() -> None:
    """Recorded as a hash; the fingerprint is made of what the engine gets, as the logs of earlier versions have it."""

    def identify(token: str) -> ReaderIdentity:
        vllm = VllmConfig(engine_args={"hf_token": token, "max_num_batched_tokens": 512})
        return identify_reader(AgentConfig(vllm=vllm))

    reader, other = identify("hunter2"), identify("hunter3")
    assert "hunter2" not in str(reader.parts)
    assert reader.parts["engine"]["engine_args"]["max_num_batched_tokens"] == 512
    assert reader.fingerprint != other.fingerprint
    engine = reader.parts["engine"] | {"engine_args": {"hf_token": "hunter2", "max_num_batched_tokens": 512}}
    parts = {name: value for name, value in reader.parts.items() if name != "model"} | {"engine": engine}
    assert reader.fingerprint == fingerprint(parts)
