import copy
import json
import pickle
from dataclasses import asdict
from typing import Any

import pytest
from pydantic import ValidationError

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.config.storage import StorageOptions
from memagent_batch.data.store.location import Location

SECRET = "hunter2-hunter2"
OPTIONS = {"key": "AKIA", "client_kwargs": {"password": SECRET}}


def settings_of(**settings: Any) -> JobConfig:
    given: dict[str, Any] = {"documents": "docs", "ask": ("Why?",), "output": "run", "storage_options": OPTIONS}
    return job_of(**given | settings)


def test_storage_options_are_masked_for_all_but_the_file_system() -> None:
    location = Location(uri="s3://bucket", storage_options=OPTIONS)
    job = settings_of()
    shown = [repr(location), str(location), repr(job), str(job), job.model_dump_json()]
    shown += [str(value) for value in (location.storage_options, asdict(location), job.model_dump())]
    assert SECRET not in "\n".join(shown)
    assert json.loads(job.model_dump_json())["storage_options"] == {"key": "***", "client_kwargs": "***"}
    for options in (location.storage_options, job.storage_options):
        assert {**options} == dict(options) == OPTIONS


def test_storage_options_pickle_and_copy_with_their_values() -> None:
    options = StorageOptions(OPTIONS)
    for again in (pickle.loads(pickle.dumps(options)), copy.deepcopy(options), settings_of().storage_options):
        assert again == options
        assert {**again} == OPTIONS
    location = Location(uri="s3://bucket", storage_options=OPTIONS)
    assert pickle.loads(pickle.dumps(location)) == location


def test_storage_options_of_settings_can_be_given_on() -> None:
    job = settings_of()
    assert settings_of(storage_options=job.storage_options).storage_options == OPTIONS
    assert JobConfig(**job.model_dump()).storage_options == OPTIONS


def test_settings_shown_or_refused_tell_no_secret() -> None:
    job = settings_of(
        documents=f"https://user:{SECRET}@host/docs",
        vllm={"engine_args": {"hf_token": SECRET}},
        openai={"base_url": f"http://svc:{SECRET}@host/v1", "extra_body": {"key": SECRET}, "api_key": SECRET},
    )
    assert SECRET not in repr(job) + str(job) + repr(job.agent.openai)
    with pytest.raises(ValidationError) as refused:
        settings_of(ask=())
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("options", ["a", [1], 3])
def test_storage_options_that_are_no_mapping_are_refused(options: object) -> None:
    with pytest.raises(ValidationError, match="storage_options"):
        settings_of(storage_options=options)
