"""Samples of documents: nested, independent of order, and fair."""

import hashlib
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.inputs.document_index import INDEX_SCHEMA, IndexRow, index_table, sample_documents

NAMES = st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=30)


def index(names: list[str]) -> pa.Table:
    rows = [IndexRow(document_id=name, document_hash=hashlib.sha256(name[:1].encode()).hexdigest()) for name in names]
    return index_table(rows, schema=INDEX_SCHEMA)


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


def test_every_document_is_taken_by_about_as_many_seeds() -> None:
    names = [chr(ord("a") + number) for number in range(20)]
    draws = [sample_documents(index(names), limit=5, seed=seed).taken["document_id"].to_pylist() for seed in range(400)]
    counts = Counter(name for drawn in draws for name in drawn)
    assert set(counts) == set(names)
    assert all(60 <= count <= 140 for count in counts.values()), counts  # 100 are expected, 8.7 is one deviation


def test_without_a_limit_all_are_taken_and_a_text_without_a_hash_has_its_id() -> None:
    assert sample_documents(index(["b", "a"]), limit=None, seed=0).outside is None
    unreadable = index_table([IndexRow(document_id=name, error="null") for name in "abcdef"], schema=INDEX_SCHEMA)
    draws = [sample_documents(unreadable, limit=2, seed=seed).taken["document_id"].to_pylist() for seed in range(20)]
    assert len({tuple(drawn) for drawn in draws}) > 5
