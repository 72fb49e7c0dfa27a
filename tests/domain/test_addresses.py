import hashlib
from array import array
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.addresses import ReadingAddress, fingerprint, text_hash, token_hash

ADDRESS = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
JSON_PARTS = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.booleans(), max_size=8)


@given(path=st.text(max_size=20), seed=st.integers(), sample=st.integers(0, 1000))
def test_turn_seed_of_any_turn_fits_31_bits_and_repeats(path: str, seed: int, sample: int) -> None:
    address = replace(ADDRESS, sample=sample)
    drawn = address.turn_seed(path, seed=seed)
    assert 0 <= drawn < 2**31
    assert replace(address).turn_seed(path, seed=seed) == drawn


def test_turn_seed_of_another_turn_sample_question_document_agent_or_seed_differs() -> None:
    seeds = {
        ADDRESS.turn_seed("answer", seed=0),
        ADDRESS.turn_seed("update/0", seed=0),
        ADDRESS.turn_seed("update/1", seed=0),
        ADDRESS.turn_seed("answer", seed=1),
        replace(ADDRESS, sample=1).turn_seed("answer", seed=0),
        replace(ADDRESS, question_hash="other").turn_seed("answer", seed=0),
        replace(ADDRESS, document_hash="other").turn_seed("answer", seed=0),
        replace(ADDRESS, fingerprint="other").turn_seed("answer", seed=0),
    }
    assert len(seeds) == 8


def test_text_hash_is_the_sha256_of_utf8() -> None:
    assert text_hash("Zürich 🏔") == hashlib.sha256("Zürich 🏔".encode()).hexdigest()


def test_token_hash_stays_as_logs_hold_it() -> None:
    for tokens in ([1, 70_000], array("i", [1, 70_000]), array("q", [1, 70_000])):
        assert token_hash(tokens) == "4ef3f8f8e83432f5"


@given(parts=JSON_PARTS)
def test_fingerprint_in_any_order_is_the_same(parts: dict[str, int | str | bool]) -> None:
    assert fingerprint(dict(reversed(parts.items()))) == fingerprint(parts)


def test_fingerprint_of_another_value_or_name_differs() -> None:
    prints = {fingerprint({"a": 1}), fingerprint({"a": 2}), fingerprint({"b": 1}), fingerprint({"a": "1"})}
    assert len(prints) == 4
