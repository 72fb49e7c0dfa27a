import json
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.errors import MemagentError, StorageError
from memagent_batch.masking import mask_url, mask_urls, printable, redact_settings

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("https://user:pw@host/docs/a.jsonl", "https://host/docs/a.jsonl"),
        ("https://user:p@ss/w0rd@host/docs/a.jsonl", "https://host/docs/a.jsonl"),
        ("https://token@host:80/docs?a=b", "https://host:80/docs?a=***"),
        ("ftp://user:pw?#@host/docs", "ftp://host/docs"),
        (
            "https://host/a.jsonl?X-Amz-Credential=k&X-Amz-Signature=s",
            "https://host/a.jsonl?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        ("https://host/a?secret", "https://host/a?***"),
        ("https://host/a#access_token=s", "https://host/a#access_token=***"),
        ("s3://bucket/a?versionId=3&X-Amz-Signature=s", "s3://bucket/a?versionId=3&X-Amz-Signature=***"),
        ("az://box/a?sv=2024&sig=s", "az://box/a?sv=2024&sig=***"),
        ("simplecache::https://user:pw@host/a", "simplecache::https://host/a"),
        ("zip://a.csv::https://user:pw@host/b.zip?sig=s", "zip://a.csv::https://host/b.zip?sig=***"),
        ("https://proxy/https://user:pw@host/a", "https://proxy/https://host/a"),
    ],
)
def test_shown_secrets_are_gone_and_the_place_is_left(uri: str, text: str) -> None:
    assert mask_url(uri) == text


@pytest.mark.parametrize(
    "uri",
    [
        "/data/a@b/c#1.txt",
        "./mail?to=me@example.com",
        "a::b.txt",
        "C:\\docs\\a.txt",
        "file:///home/me@work/docs",
        "s3://bucket/2024-0?/me@work.txt",
        "s3://bucket/a#b.txt",
        "abfss://container@account.dfs.core.windows.net/docs",
        "hf://datasets/user/name@main/a.parquet",
        "simplecache::s3://bucket/key",
    ],
)
def test_shown_plain_place_is_unchanged(uri: str) -> None:
    assert mask_url(uri) == uri


@given(
    password=st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8), user=st.sampled_from(["u", "a.b", ""])
)
def test_shown_any_password_is_gone_at_once(password: str, user: str) -> None:
    text = mask_url(f"https://{user}:{password}@host/docs/a.jsonl")
    assert password not in text
    assert text.endswith("host/docs/a.jsonl")
    assert mask_url(text) == text


def test_shown_text_masks_each_url_and_leaves_the_rest() -> None:
    text = "no 'https://u:p@h/x?sig=a', and (http://h/a.jsonl?t=1), row 3; mail me@example.com"
    assert mask_urls(text) == "no 'https://h/x?sig=***', and (http://h/a.jsonl?t=***), row 3; mail me@example.com"


def test_error_message_of_any_kind_hides_what_a_url_holds() -> None:
    error = StorageError(f"FileNotFoundError: ftp://user:{SECRET}@host/docs, row 1")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, MemagentError)
    assert str(error) == str(again) == "FileNotFoundError: ftp://host/docs, row 1"


def test_recorded_secrets_are_hashes_that_tell_a_change() -> None:
    def engine_args(secret: str) -> Mapping[str, object]:
        return {
            "hf_token": secret,
            "model_loader_extra_config": {
                "aws_secret_access_key": secret,
                "password": 12345,
                "endpoint": f"http://u:{secret}@h",
            },
            "extra_body": {"user": secret},
        }

    text = json.dumps(redact_settings(engine_args(SECRET)))
    assert SECRET not in text
    assert "12345" not in text
    assert redact_settings(engine_args(SECRET)) == redact_settings(engine_args(SECRET))
    assert redact_settings(engine_args(SECRET)) != redact_settings(engine_args("another"))
    assert redact_settings(redact_settings(engine_args(SECRET))) == redact_settings(engine_args(SECRET))


def test_recorded_other_arguments_are_as_they_are() -> None:
    settings = {
        "max_num_batched_tokens": 8192,
        "tokenizer_mode": "slow",
        "trust_remote_code": False,
        "hf_overrides": {"rope": [1, 2.5, None]},
        "hf_token": None,
        "extra_body": {},
    }
    assert redact_settings(settings) == settings


def test_printable_moves_no_cursor_begins_no_line_and_turns_no_text() -> None:
    text = "bad\x1b[2J\x1b[1;1H\r\nrun closed\x9b\x85\u2028\u202eabc\u2066\ud800\x00\x7f"
    line = printable(text)
    assert line.isprintable()
    assert line.startswith(r"bad\x1b[2J\x1b[1;1H\r\nrun closed\x9b\x85\u2028\u202eabc")
    assert printable("naïve 東京 🙂 שלום\u200d नमस्ते") == "naïve 東京 🙂 שלום\u200d नमस्ते"
