"""Which sentences are shown for an answer, and which of them a model points at."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.document import ChunkSpan
from memagent_batch.loop.follow_ups.evidence import (
    MAX_SOURCES,
    NUMBERING_TOKENS,
    Candidate,
    MemoryTrace,
    ShownRange,
    candidates_of,
    choose_candidates,
    evidence_guide,
    evidence_of,
)
from memagent_batch.loop.texts.sentences import split_sentences
from memagent_batch.loop.texts.words import folded_words
from memagent_batch.types import Document, Prompt, Writes

TEXT = "Grass is green. The code of amber is 17. Sky is blue.\nThe code of copper is 99. 契約は終了した。 End!"
DOCUMENT = Document(token_ids=[ord(sign) for sign in TEXT], token_chars=range(len(TEXT)), num_chars=len(TEXT))
SENTENCES = split_sentences(TEXT)


def chunk(index: int, *, size: int = 20, overlap: int = 0) -> ChunkSpan:
    start = index * (size - overlap)
    return ChunkSpan(index=index, token_start=start, token_end=start + size, char_start=start, char_end=start + size)


def read_of(index: int) -> Prompt:
    return Prompt(path=f"p/{index}", kind="k", token_ids=[1], max_tokens=1, span=chunk(index), writes=Writes.MEMORY)


def trace_of(*memories: str | None, first: str = "Nothing noted yet.") -> MemoryTrace:
    trace = MemoryTrace(seen=dict.fromkeys(folded_words(first)))
    for index, memory in enumerate(memories):
        trace.take(read_of(index), written=memory)
    return trace


def candidate(number: int) -> Candidate:
    start = 10 * number
    return Candidate(char_start=start, char_end=start + 9, token_start=start, token_end=start + 4, chunk_index=None)


def chunks_of(trace: MemoryTrace) -> list[int | None]:
    return [source.chunk_index for source in trace.sources(question="code of amber?", answer="17")]


def test_sources_are_the_chunks_at_which_the_final_words_came_and_stayed() -> None:
    trace = trace_of("amber: nothing noted yet", None, "amber code 17", "amber code 17 and sky", "code of amber is 17")
    assert chunks_of(trace) == [2, 4]


def test_word_that_went_away_counts_from_when_it_came_back() -> None:
    assert chunks_of(trace_of("17", "none", "17", None)) == [2]


def test_words_of_the_question_say_nothing_unless_there_are_no_others() -> None:
    assert chunks_of(trace_of("code of amber", "code of amber")) == [0]


def test_chunks_with_words_of_the_answer_stay_where_there_are_too_many() -> None:
    memory = ""
    memories = []
    for index in range(3 * MAX_SOURCES):
        memory += f" word{index}" + (" 17" if index == 20 else "")
        memories.append(memory)
    found = chunks_of(trace_of(*memories))
    assert len(found) == MAX_SOURCES
    assert 20 in found


@given(st.permutations([(0, None), (2, "the code is 17"), (3, "code 17 and sea"), (1, None)]))
def test_notes_that_are_written_side_by_side_and_merged_lead_to_their_chunks_in_any_order(
    notes: list[tuple[int, str | None]],
) -> None:
    trace = MemoryTrace(seen=dict.fromkeys(folded_words("Nothing noted yet.")))
    for index, note in notes:
        trace.take(replace(read_of(index), writes=Writes.NOTE), written=note)
    inner = Prompt(path="merge/1/0/0", kind="merge", token_ids=[1], max_tokens=1, writes=Writes.NOTE)
    last = Prompt(path="merge/1/1/0", kind="merge", token_ids=[1], max_tokens=1, writes=Writes.MEMORY)
    trace.take(inner, written="the code is 17, near the sea")
    trace.take(last, written="code 17, near the sea")
    assert chunks_of(trace) == [2, 3]
    trace.take(last, written="code 17")
    assert chunks_of(trace) == [2]
    assert trace.coverage(80) == 1.0


def test_memory_that_never_changed_has_no_sources_but_a_coverage() -> None:
    trace = trace_of(None, None)
    assert trace.sources(question="q", answer="") == ()
    assert trace.coverage(40) == 1.0
    assert trace.coverage(80) == 0.5
    assert MemoryTrace().coverage(0) == 1.0


def test_policy_without_a_memory_has_the_parts_that_it_showed() -> None:
    prompt = Prompt(path="direct", kind="direct", token_ids=[1], max_tokens=1, shown=[(0, 10), (50, 60)])
    trace = MemoryTrace(seen=dict.fromkeys(["nothing"]))
    trace.take(prompt, written=None)
    parts = trace.sources(question="q", answer="a")
    assert [(part.token_start, part.token_end, part.chunk_index) for part in parts] == [(0, 10, None), (50, 60, None)]
    assert trace.coverage(100) == 0.2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=8))
def test_coverage_counts_each_token_once(ranges: list[tuple[int, int]]) -> None:
    trace = MemoryTrace()
    for start, length in ranges:
        shown = [(start, start + length)]
        trace.take(Prompt(path="p", kind="k", token_ids=[1], max_tokens=1, shown=shown), written=None)
    covered = {token for start, length in ranges for token in range(start, start + length)}
    assert trace.coverage(100) == pytest.approx(len(covered) / 100)


def test_candidates_of_overlapping_chunks_are_there_once_and_whole_in_order() -> None:
    spans = [chunk(1, size=40, overlap=20), chunk(0, size=40, overlap=20)]
    sources = [ShownRange(token_start=s.token_start, token_end=s.token_end, chunk_index=s.index) for s in spans]
    found = candidates_of(DOCUMENT, SENTENCES, sources)
    texts = [TEXT[each.char_start : each.char_end] for each in found]
    assert texts == ["Grass is green.", "The code of amber is 17.", "Sky is blue.", "The code of copper is 99."]
    assert [each.chunk_index for each in found] == [0, 1, 1, 1]
    assert all((each.token_start, each.token_end) == (each.char_start, each.char_end) for each in found)


def test_nearest_sentences_are_shown_in_the_order_of_the_document_within_the_budget() -> None:
    found = candidates_of(DOCUMENT, SENTENCES, [ShownRange(token_start=0, token_end=DOCUMENT.num_tokens)])
    words = [folded_words(TEXT[each.char_start : each.char_end]) for each in found]

    def shown(sought: str, max_tokens: int = 1000) -> list[str]:
        chosen = choose_candidates(found, words=words, sought=folded_words(sought), max_tokens=max_tokens)
        assert sum(each.num_tokens for each in chosen) <= max_tokens
        return [TEXT[each.char_start : each.char_end] for each in chosen]

    assert shown("code amber 17") == ["The code of amber is 17.", "The code of copper is 99."]
    assert shown("code amber 17", max_tokens=24 + NUMBERING_TOKENS) == ["The code of amber is 17."]
    assert shown("終了") == ["契約は終了した。"]
    assert shown("zebra", max_tokens=50) == ["Grass is green.", "Sky is blue."]
    assert shown("code", max_tokens=3) == []


@given(st.integers(1, 150), st.data())
def test_evidence_is_the_sentences_that_were_numbered(num_sentences: int, data: st.DataObject) -> None:
    candidates = [candidate(number) for number in range(num_sentences)]
    guide = evidence_guide(num_sentences)
    numbers = data.draw(st.lists(st.integers(1, num_sentences), min_size=0, max_size=min(5, num_sentences)))
    text = ", ".join(map(str, numbers)) or "none"
    assert guide.allows(text)
    found = evidence_of(text, candidates)
    assert [each.char_start // 10 + 1 for each in found] == list(dict.fromkeys(numbers))


@pytest.mark.parametrize("text", ["0", "4", "1,2", "1, 2, 3, 1, 2, 3", "", "none, 1", "01"])
def test_evidence_that_the_guide_does_not_allow_is_refused(text: str) -> None:
    candidates = [candidate(number) for number in range(3)]
    assert not evidence_guide(3).allows(text)
    with pytest.raises(ValueError, match="not a list of sentence numbers up to 3"):
        evidence_of(text, candidates)
