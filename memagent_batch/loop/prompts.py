"""Prompt sets: the named, versioned, hashed texts that a policy shows to a model, and their assembly from tokens.

A text is parsed once into fixed pieces and slots. The fixed pieces are tokenised once, with the chat template around
them; the slots are filled with token ids, so that no text of a document, question or memory is ever parsed again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from string import Formatter

from memagent_batch.errors import PromptSetError
from memagent_batch.loop.completions import after_thoughts
from memagent_batch.types import Completion


class Slot(StrEnum):
    """What a prompt text leaves open."""

    QUESTION = "question"
    MEMORY = "memory"
    CHUNK = "chunk"
    NOTES = "notes"
    """Notes of several chunks, in document order, each under the numbers of its sections."""
    ANSWER = "answer"
    FORM = "form"
    """How a value is to be written, in a follow-up question."""
    SENTENCES = "sentences"
    """Sentences of the document with their numbers, in a follow-up question."""


READING_SLOTS = (Slot.QUESTION, Slot.MEMORY, Slot.CHUNK, Slot.NOTES)
"""What the texts of a prompt set may leave open."""
UPDATE_SLOTS = frozenset({Slot.QUESTION, Slot.MEMORY, Slot.CHUNK})
ANSWER_SLOTS = frozenset({Slot.QUESTION, Slot.MEMORY})
DIRECT_SLOTS = frozenset({Slot.QUESTION, Slot.CHUNK})
MERGE_SLOTS = frozenset({Slot.QUESTION, Slot.MEMORY, Slot.NOTES})

DIRECT_TEXT = (
    "Answer the question from these parts of a document.\n\n"
    "<question>\n{question}\n</question>\n\n"
    "<section>\n{chunk}\n</section>\n\n"
    "Write the answer in \\boxed{{}}."
)
"""The project's own wording of the turn that answers from the document itself."""

PASSAGE_GAP = "\n[...]\n"
"""Stands between two parts of a document in one prompt."""

QUOTES = " \t\r\n.\"'`*"
"""What may stand around the keep word without changing what it says."""

CLAUSE_END = re.compile(r"\n|[.,:;!]+(?:[\s\"'`*]|$)|\s[(–—-]|—")
"""Ends what is read of a completion for the keep word: the reason that a model gives stands behind it."""

PromptPiece = str | Slot

Encode = Callable[[str], Sequence[int]]
"""Token ids of a short text, read as plain text."""
Decode = Callable[[Sequence[int]], str]


PUBLISHED = "published"
"""Version of prompt sets whose texts are those of a published agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """The texts of one way to ask. Slots are `{question}`, `{memory}` and `{chunk}`; other braces are doubled."""

    name: str
    version: str
    """Changes with every change of a text."""
    first_memory: str
    update: str
    """Text of an `update` turn; holds all three slots."""
    answer: str
    """Text of an `answer` turn; holds question and memory, and says how the answer is to be marked."""
    direct: str = DIRECT_TEXT
    """Text of a `direct` turn; holds question and chunk. No published checkpoint was trained on such a turn."""
    keep_word: str = ""
    """What the model writes in an `update` turn to keep its memory as it is; empty where it always writes a new one."""
    merge: str = ""
    """Text of a `merge` turn; holds question and notes, and the memory where it has its own place; else the memory
    stands before the notes. Empty where no policy of the set merges notes."""
    note: str = ""
    """Where the texts come from, and which checkpoints expect them. Not hashed."""

    def __post_init__(self) -> None:
        require_slots(self.update, UPDATE_SLOTS, place=f"prompt set {self.name!r}, update text")
        require_slots(self.answer, ANSWER_SLOTS, place=f"prompt set {self.name!r}, answer text")
        require_slots(self.direct, DIRECT_SLOTS, place=f"prompt set {self.name!r}, direct text")
        if self.merge:
            has_place = Slot.MEMORY in split_slots(self.merge)
            slots = MERGE_SLOTS if has_place else MERGE_SLOTS - {Slot.MEMORY}
            require_slots(self.merge, slots, place=f"prompt set {self.name!r}, merge text")
        if any("\ud800" <= character <= "\udfff" for text in asdict(self).values() for character in text):
            raise PromptSetError(f"prompt set {self.name!r} holds a lone surrogate, which is not valid Unicode")

    @property
    def sha256(self) -> str:
        """Hash of name, version and every text, as 64 hex digits."""
        texts = {name: text for name, text in asdict(self).items() if name != "note"}
        return hashlib.sha256(json.dumps(texts, ensure_ascii=True).encode()).hexdigest()


def split_slots(text: str) -> list[PromptPiece]:
    """Fixed pieces and slots of a prompt text, in order; doubled braces are single ones in the pieces.

    Raises:
        PromptSetError: a brace is not closed, or a slot is unknown.
    """
    pieces: list[PromptPiece] = []
    try:
        for literal, name, spec, conversion in Formatter().parse(text):
            if literal:
                pieces.append(literal)
            if name is not None:
                if spec or conversion:
                    raise ValueError(f"slot {{{name}}} has a format")
                pieces.append(Slot(name))
    except ValueError as error:
        slots = ", ".join(f"{{{slot}}}" for slot in READING_SLOTS)
        raise PromptSetError(
            f"prompt text can't be parsed: {error}; slots are {slots}, other braces are doubled"
        ) from error
    return pieces


def require_slots(text: str, slots: frozenset[Slot], *, place: str) -> None:
    """Checks that the text has each of these slots exactly once, and no other.

    Raises:
        PromptSetError: names the place, the slots that are needed and those that are there.
    """
    try:
        slot_names = sorted(piece.value for piece in split_slots(text) if isinstance(piece, Slot))
    except PromptSetError as error:
        raise PromptSetError(f"{place}: {error}") from error
    if slot_names != sorted(slots):
        needs, has = (", ".join(f"{{{name}}}" for name in names) for names in (sorted(slots), slot_names))
        raise PromptSetError(f"{place}: needs each of the slots {needs} once, has {has or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTemplate:
    """A prompt text in token space: runs of token ids and slots, chat template included."""

    pieces: tuple[tuple[int, ...] | Slot, ...]
    """Empty where the prompt set has no such text."""
    place: str = "prompt set"
    """Names set and text in a message, such as `prompt set 'default', merge text`."""

    @property
    def num_fixed_tokens(self) -> int:
        """Tokens of the prompt apart from its slots.

        Raises:
            PromptSetError: the prompt set has no such text.
        """
        self._require_text()
        return sum(len(piece) for piece in self.pieces if not isinstance(piece, Slot))

    @property
    def begins_with_chunk(self) -> bool:
        """Whether the chunk stands before question and memory: prompts of all questions about it begin alike."""
        return next((piece for piece in self.pieces if isinstance(piece, Slot)), None) is Slot.CHUNK

    def fill(self, values: Mapping[Slot, Sequence[int]]) -> list[int]:
        """The prompt's token ids, with each slot replaced by its tokens.

        Raises:
            PromptSetError: the prompt set has no such text.
        """
        self._require_text()
        token_ids: list[int] = []
        for piece in self.pieces:
            token_ids.extend(values[piece] if isinstance(piece, Slot) else piece)
        return token_ids

    def _require_text(self) -> None:
        if not self.pieces:
            raise PromptSetError(
                f"{self.place}: empty, but the policy uses it; give the policy's class a prompt_set that has this text"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a reading, in both forms."""

    token_ids: Sequence[int]
    """What the next prompt shows."""
    text: str
    """What the tables show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """A prompt set as one tokeniser writes it: all that a policy needs to build its prompts."""

    update: TokenTemplate
    answer: TokenTemplate
    direct: TokenTemplate
    first_memory: Memory
    control_token_ids: frozenset[int]
    """Tokens that steer a model and never belong in a memory."""
    encode: Encode
    """Tokenises what a reasoning model says after a thought; nothing else that a model writes is tokenised again."""
    decode: Decode
    """Text of a document's tokens, for policies that look at words."""
    merge: TokenTemplate = TokenTemplate(pieces=())
    """The `merge` turn; empty where the set has no text for it."""
    gap: tuple[int, ...] = ()
    """What stands between two parts of a document in one prompt."""
    keep_word: str = ""
    """What the model writes to keep its memory as it is; empty where it always writes a new one."""
    opens_thought: bool = False
    """Whether the chat template ends each prompt inside a thought, so that completions begin there."""

    def remember(self, memory: Memory, completion: Completion) -> Memory:
        """The memory after an `update` turn: what the model wrote, without thoughts and control tokens."""
        text = new_memory(completion.text, keep_word=self.keep_word, opens_thought=self.opens_thought)
        if text is None:
            return memory
        if text != completion.text:
            return Memory(token_ids=self.encode(text), text=text)
        plain = [token for token in completion.token_ids if token not in self.control_token_ids]
        return Memory(token_ids=plain, text=text)

    def response(self, completion: Completion) -> str:
        """What an `answer` or `direct` turn says after its thoughts; empty where it ended inside one."""
        return after_thoughts(completion.text, opens_thought=self.opens_thought) or ""


def new_memory(text: str, *, keep_word: str, opens_thought: bool) -> str | None:
    """The memory that an `update` turn wrote; None where it leaves the memory as it was.

    A completion without any text leaves it, and so does one that ends inside a thought: notes are never lost to a model
    that says nothing. So does the keep word of a gated prompt set, however it is quoted, ended or explained.
    """
    written = after_thoughts(text, opens_thought=opens_thought)
    if written is None or not written.strip():
        return None
    return None if keep_word and _says_keep_word(written, keep_word=keep_word) else written


def _says_keep_word(written: str, *, keep_word: str) -> bool:
    """Whether a model wrote the word that keeps its memory. A tag comes first, a word has the first clause for itself.

    "keep: nothing new" keeps, whatever lines follow; "Keep receipts for 7 years." is a note. A tag elsewhere may be a
    quotation, of the document or of a note, and what stands beside it would be lost.
    """
    plain, word = written.strip(QUOTES).casefold(), keep_word.casefold()
    if not plain.startswith(word):
        return False
    return word.startswith("<") or CLAUSE_END.split(plain, maxsplit=1)[0].rstrip(QUOTES) == word
