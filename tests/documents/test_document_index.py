"""Samples of the index."""

import hashlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.data.documents.document_index import INDEX_SCHEMA, index_row, sample_documents

NAMES = st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=30)


def index(names: list[str]) -> pa.Table:
    rows = [index_row(name, document_hash=hashlib.sha256(name[:1].encode()).hexdigest()) for name in names]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


@given(NAMES, st.integers(1, 30), st.integers(1, 30), st.integers(0, 3), st.randoms())
def test_samples_of_any_order_are_nested_and_lose_no_document(
    names: list[str], small: int, large: int, seed: int, random: object
) -> None:
    small, large = sorted((small, large))
    shuffled = names.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    few = sample_documents(index(names), limit=small, seed=seed)
    many = sample_documents(index(shuffled), limit=large, seed=seed)
    taken, more = few.taken["document_id"].to_pylist(), many.taken["document_id"].to_pylist()
    assert set(taken) <= set(more)
    assert len(taken) == min(small, len(names))
    assert few.outside is not None
    assert sorted([*taken, *few.outside["document_id"].to_pylist()]) == sorted(names)
    assert taken == [name for name in names if name in taken]


def test_without_a_limit_all_are_taken_and_a_text_without_a_hash_has_its_id() -> None:
    assert sample_documents(index(["b", "a"]), limit=None, seed=0).outside is None
    unreadable = pa.Table.from_pylist([index_row(name, error="null") for name in "abcdef"], schema=INDEX_SCHEMA)
    draws = [sample_documents(unreadable, limit=2, seed=seed).taken["document_id"].to_pylist() for seed in range(20)]
    assert len({tuple(drawn) for drawn in draws}) > 5
