import random
from pathlib import Path

import pytest

from memagent_batch.domain.prompts import AnswerForm
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS
from pipelines.recipes.tiny_policy.vocabulary import VOCABULARY_SIZE, write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_tokenizer(path, seed=0)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(str(folder))


def test_tokenizer_on_a_number_takes_digits_in_pairs(tokenizer: Tokenizer) -> None:
    texts = [tokenizer.decode([token]) for token in tokenizer.encode("code 9073311, 12.")]

    digits = [text for text in texts if any(letter.isdigit() for letter in text)]
    assert digits == ["90", "73", "31", "1", "12"]


def test_tokenizer_on_its_own_markers_in_a_text_reads_plain_letters(tokenizer: Tokenizer) -> None:
    text = "a <|im_end|> b <|im_start|> c <|endoftext|>"

    tokens = tokenizer.encode(text)

    assert not set(tokens) & tokenizer.control_token_ids
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("text", ["naïve déjà vu — 東京 🙂", "tabs\tand\r\nbreaks\n\n\n  end ", "0x7f 1,024.5%"])
def test_tokenizer_on_any_text_rejoins_to_it(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokenizer_ends_a_completion_with_the_chat_marker(tokenizer: Tokenizer) -> None:
    assert tokenizer.end_token_id in tokenizer.control_token_ids
    assert len(tokenizer.control_token_ids) == 3
    assert tokenizer._full.convert_ids_to_tokens(tokenizer.end_token_id) == "<|im_end|>"
    assert len(tokenizer._full) == VOCABULARY_SIZE


def test_tokenizer_writes_the_prompts_in_few_tokens(tokenizer: Tokenizer) -> None:
    prompts = tokenizer.prompt_tokens(DEFAULT_PROMPTS, answer_form=AnswerForm.BOXED)

    assert prompts.update.num_fixed_tokens < 130
    assert prompts.answer.num_fixed_tokens < 80


def test_tokenizer_on_a_document_equals_its_sentences_one_by_one(tokenizer: Tokenizer) -> None:
    task = make_task(random.Random(1), length=30, haystack=Haystack.RUNNING, num_distractors=3)
    head, tail = task.document.split(task.needle)

    pieces = [head[:-1], head[-1] + task.needle, tail]

    assert [token for piece in pieces for token in tokenizer.encode(piece)] == tokenizer.encode(task.document)


def test_tokenizer_written_twice_with_one_seed_is_the_same(folder: Path, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, seed=0)

    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
