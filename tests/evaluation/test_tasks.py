import re
from collections import Counter

import pytest

from memagent_batch.apps.evaluation.haystacks import TOLERANCE, SuiteSample, TokenMeter
from memagent_batch.apps.evaluation.suite import SuitePlan
from memagent_batch.apps.evaluation.tasks import ADJECTIVES, NOUNS, TASKS
from memagent_batch.errors import SettingsError
from memagent_batch.loop.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.loop.tokens.tokenizer import Tokenizer

NEEDLE = re.compile(r"One of the special magic (\w+)s for (\S+) is: (\S+)\.")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def meter(tiny_tokenizer: Tokenizer) -> TokenMeter:
    return TokenMeter(tiny_tokenizer)


def make_cell(meter: TokenMeter, *, task: str, length: int = 2000, samples: int = 3) -> list[SuiteSample]:
    plan = SuitePlan(tasks=(task,), lengths=(length,), samples=samples, seed=0)
    return [TASKS[task].make(request, meter) for request in plan.requests(task=task, length=length)]


@pytest.mark.parametrize("length", [512, 5000])
@pytest.mark.parametrize("task", list(TASKS))
def test_samples_of_every_task_differ_hold_their_references_and_have_their_length(
    task: str, length: int, meter: TokenMeter
) -> None:
    first, second = make_cell(meter, task=task, length=length, samples=2)

    assert first.document != second.document
    for sample in (first, second):
        assert sample.num_tokens == meter.count(sample.document)
        assert abs(sample.num_tokens - length) <= TOLERANCE * length
        assert task == "absent" or all(found in sample.document for found in sample.references)
        assert meter.count(sample.question) <= 128  # the question's budget of the tiny policy


@pytest.mark.parametrize(
    ("task", "num_needles", "num_references"),
    [
        ("niah_single_1", 1, 1),
        ("niah_single_2", 1, 1),
        ("niah_single_3", 1, 1),
        ("niah_multikey_1", 4, 1),
        ("niah_multivalue", 4, 4),
        ("niah_multiquery", 4, 4),
    ],
)
def test_needle_task_has_the_published_number_of_needles(
    task: str, num_needles: int, num_references: int, meter: TokenMeter
) -> None:
    for sample in make_cell(meter, task=task):
        needles = NEEDLE.findall(sample.document)
        told = {value for _, key, value in needles if key in sample.question}
        assert len(needles) == num_needles
        assert set(sample.references) == told
        assert len(sample.references) == num_references == len(told)


def _key_form(key: str, listed: set[str]) -> tuple[bool, bool, int]:
    """What a key looks like: real or made-up words, and its length in steps of four letters."""
    first, last = key.split("-")
    return first in listed, last in listed, len(key) // 4


def test_asked_key_among_needles_is_drawn_like_all_others(meter: TokenMeter) -> None:
    listed = {*ADJECTIVES, *NOUNS}
    asked, others = Counter[tuple[bool, bool, int]](), Counter[tuple[bool, bool, int]]()
    for sample in make_cell(meter, task="niah_multikey_2", length=1000, samples=300):
        for _, key, value in NEEDLE.findall(sample.document):
            (asked if value in sample.references else others)[_key_form(key, listed)] += 1
    assert asked.total() == 300
    pooled = {form: (asked[form] + others[form]) / (asked.total() + others.total()) for form in asked | others}
    frequent = [form for form, share in pooled.items() if share * asked.total() >= 5]
    distance = sum((asked[form] - pooled[form] * 300) ** 2 / (pooled[form] * 300) for form in frequent)
    assert len(frequent) > 3
    assert distance < 3 * len(frequent)  # chi-squared; chance alone reaches it less than once in a hundred times
    assert 0 < sum(num for form, num in asked.items() if any(form[:2])) < 0.1 * 300


@pytest.mark.parametrize("task", ["niah_multikey_2", "niah_multikey_3"])
def test_needle_haystack_is_needles_with_keys_that_are_all_different(task: str, meter: TokenMeter) -> None:
    (sample,) = make_cell(meter, task=task, length=30_000, samples=1)

    *lines, last = sample.document.split("\n")
    found = [NEEDLE.fullmatch(line) for line in lines]
    keys = [each[2] for each in found if each]
    if task == "niah_multikey_3":
        assert all(each and UUID.fullmatch(each[2]) and UUID.fullmatch(each[3]) for each in found)
    assert len(set(keys)) == len(keys) > 250
    assert sum(key in sample.question for key in keys) == 1
    assert last.startswith("One of the special magic")


@pytest.mark.parametrize("task", ["niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2"])
def test_needle_depths_of_a_cell_are_one_in_each_part_of_the_document(task: str, meter: TokenMeter) -> None:
    samples = make_cell(meter, task=task, length=5000, samples=10)

    depths = [sample.depth for sample in samples if sample.depth is not None]
    assert len(depths) == 10
    assert depths != sorted(depths)
    for part, depth in enumerate(sorted(depths)):
        assert part / 10 - 0.02 <= depth <= (part + 1) / 10 + 0.02
    for sample in samples:
        assert sample.document.index(sample.references[0]) / len(sample.document) - (sample.depth or 0) < 0.01


@pytest.mark.parametrize("task", ["stated", "absent"])
def test_asked_key_is_stated_once_among_others_or_not_at_all(task: str, meter: TokenMeter) -> None:
    for sample in make_cell(meter, task=task, samples=10):
        told = {key: value for _, key, value in NEEDLE.findall(sample.document)}
        assert len(told) == (4 if task == "stated" else 3)
        asked = re.search(r"number for (\S+) mentioned", sample.question)
        assert asked is not None
        assert sample.references == (told.get(asked[1], NOT_STATED_ENTRY),)
        assert NOT_STATED_ENTRY in sample.question


def test_variable_tracking_is_one_chain_of_four_hops_in_order(meter: TokenMeter) -> None:
    for sample in make_cell(meter, task="vt"):
        told = re.findall(r"^VAR ([A-Z]{5}) = (?:VAR )?(\w+)$", sample.document, re.MULTILINE)
        names = [name for name, _ in told]
        assert len(set(names)) == 5
        assert [origin for _, origin in told[1:]] == names[:-1]
        assert re.fullmatch(r"\d{5}", told[0][1])
        assert f"the value {told[0][1]} " in sample.question
        assert set(sample.references) == set(names)


def test_conflict_answer_is_the_later_of_two_statements(meter: TokenMeter) -> None:
    for sample in make_cell(meter, task="conflict", samples=10):
        key = re.search(r"number for (\S+) mentioned", sample.question)[1]  # type: ignore[index]
        told = re.findall(rf"he special magic number for {key} is: (\d+)\.", sample.document)
        assert len(set(told)) == 2
        assert sample.references == (told[1],)
        assert sample.document.count("Correction:") == 2


@pytest.mark.parametrize("task", list(TASKS))
def test_gold_spans_are_whole_sentences_that_bear_the_answer(task: str, meter: TokenMeter) -> None:
    for sample in make_cell(meter, task=task, length=1500):
        assert list(sample.gold) == sorted(sample.gold)
        told = [sample.document[start:end] for start, end in sample.gold]
        assert bool(told) is not (task == "absent")
        assert all(text == text.strip() and (text[-1] == "." or text.startswith("VAR ")) for text in told)
        if task != "absent":
            assert all(any(reference in text for text in told) for reference in sample.references)


def test_length_without_room_for_the_needles_is_refused_with_the_least_one(text_model: str) -> None:
    with pytest.raises(SettingsError, match=r"--lengths: 130 tokens are too few for niah_multivalue, which .* or more"):
        make_cell(TokenMeter(Tokenizer(text_model)), task="niah_multivalue", length=130)
