"""The tiny policy's tokeniser: byte-level BPE, digits in pairs, with a ChatML template. First step of the recipe."""

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from memagent_batch.domain.prompts import PromptPiece, split_slots
from memagent_batch.evaluation.needles.facts import Split, make_needle
from memagent_batch.evaluation.needles.tasks import Haystack, haystack_units
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS, GATED_PROMPTS
from pipelines.recipes.tiny_policy.lessons.manual import manual_sentences

VOCABULARY_SIZE = 1024
"""Tokens, control tokens included."""

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
"""Control tokens; a completion ends with `TURN_END`."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, without a default system text."""

DIGITS = r"\d{1,2}"
"""Numbers are cut into pairs of digits. Digit by digit, other numbers in sight would often show the same digit with
another one behind it, and copying would have to look further back; pairs are seldom seen twice."""

PAIR_REPEATS = 400
"""How often every pair of digits is shown to the BPE training, so that each becomes a token."""

PROMPT_REPEATS = 300
"""How often the prompts are shown to the BPE training, so that their words become single tokens."""

MAX_LENGTH_TOKENS = 4096
"""Longest sequence of the model."""


def write_tokenizer(folder: Path, *, seed: int) -> None:
    """Trains the tokeniser and writes `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(DIGITS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(random.Random(seed)), trainer=trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(_config(), indent=2) + "\n", encoding="utf-8")


def training_texts(rng: random.Random) -> Iterator[str]:
    """Texts of the training split, and the prompts, in the proportions that the BPE merges should serve."""
    prompt_texts = [DEFAULT_PROMPTS.update, GATED_PROMPTS.update]
    prompt_texts += [*DEFAULT_PROMPTS.answers.values(), *DEFAULT_PROMPTS.direct.values()]
    pieces: list[PromptPiece] = [piece for text in prompt_texts for piece in split_slots(text)]
    prompts = [piece for piece in pieces if isinstance(piece, str)]
    frame = ["user\n", "assistant\n", DEFAULT_PROMPTS.first_memory, GATED_PROMPTS.keep_word, "\\boxed{not stated}"]
    yield from (prompts + frame) * PROMPT_REPEATS
    yield from [f"{pair:02d}" for pair in range(100)] * PAIR_REPEATS
    for _ in range(6000):
        needle = make_needle(rng, split=Split.TRAINING)
        yield from (" " + needle.sentence, needle.note, needle.blank, needle.question, f"\\boxed{{{needle.answer}}}")
    yield from islice(haystack_units(rng, haystack=Haystack.RUNNING, split=Split.TRAINING), 15_000)
    yield from islice(haystack_units(rng, haystack=Haystack.NOISE, split=Split.TRAINING), 300)
    yield from manual_sentences()


def _config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_LENGTH_TOKENS,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
    }
