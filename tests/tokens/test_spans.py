import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders, normalizers

from memagent_batch.loop.tokens.tokenizer_json import TokenizerJson
from tests.conftest import trained_backend

SAMPLE = "The quick brown fox: 12345, Zürich — 北京 🏔 it's.\n"


def backend_of(normalizer: normalizers.Normalizer | None) -> BackendTokenizer:
    return trained_backend([SAMPLE * 20], num_tokens=400, normalizer=normalizer)


BACKENDS = [backend_of(None), backend_of(normalizers.NFC())]


@pytest.mark.parametrize("backend", BACKENDS, ids=["plain", "nfc"])
@given(text=st.text(alphabet=st.sampled_from(SAMPLE + "e\u0301")) | st.text(st.characters(exclude_categories=["Cs"])))
def test_token_chars_are_the_tokenisers_own_offsets_or_none(backend: BackendTokenizer, text: str) -> None:
    places = TokenizerJson.of(backend).byte_places()
    assert places is not None
    encoding = backend.encode(text)
    token_chars = places.token_chars(np.asarray(encoding.ids, np.int32), text)
    if token_chars is not None:
        assert token_chars.tolist() == [first for first, _ in encoding.offsets]


PLACED = [(0, SAMPLE, True), (1, SAMPLE, True), (1, "e\u0301", False)]


@pytest.mark.parametrize(("backend", "text", "is_known"), PLACED)
def test_token_chars_are_known_unless_the_text_is_changed_on_its_way(
    backend: int, text: str, *, is_known: bool
) -> None:
    places = TokenizerJson.of(BACKENDS[backend]).byte_places()
    assert places is not None
    token_chars = places.token_chars(np.asarray(BACKENDS[backend].encode(text).ids, np.int32), text)
    assert (token_chars is not None) is is_known


def test_vocabulary_whose_tokens_are_no_bytes_has_no_places() -> None:
    backend = backend_of(None)
    backend.decoder = decoders.Metaspace()
    assert TokenizerJson.of(backend).byte_places() is None
    assert TokenizerJson.of(backend_of(normalizers.Lowercase())).byte_places() is None
