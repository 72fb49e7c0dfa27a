"""The perfect memory agent: what each turn of each policy should write, given what the document truly says.

It stands in the engine's place, so that prompts are token for token those of the product.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY, AnswerType
from memagent_batch.domain.follow_ups.evidence import NO_SENTENCE
from memagent_batch.domain.follow_ups.prompts import SUPPORT_MENU, Support
from memagent_batch.domain.follow_ups.values import menu
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Writes
from memagent_batch.tokens.tokenizer import Tokenizer
from pipelines.recipes.reader.facts import Fact, Mention, Value
from pipelines.recipes.reader.texts import Story

SECTIONS = re.compile(r"\[Sections? (\d+)(?: to (\d+))?\]:\n")
NUMBERED = re.compile(r"^\[(\d+)\] ?(.*?)(?=^\[\d+\]|\Z)", re.MULTILINE | re.DOTALL)

Noted = Mapping[int, tuple[int, int]]
"""What a memory holds: of each mention, by its number, the characters of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One turn as it should be."""

    kind: str
    prompt: Sequence[int]
    completion: Sequence[int]
    """Ends with the token that ends a completion."""
    says_news: bool
    is_tempting: bool = False
    """Whether it shows a value of the sort that is asked for, and no news."""


@dataclass(slots=True, kw_only=True)
class Oracle:
    """Answers the turns of one reading by the truth; it keeps what was noted and what it wrote."""

    story: Story
    fact: Fact
    tokenizer: Tokenizer
    first_memory: str
    keep_word: str
    num_heads: int = 0
    """How many notes the memory has, if each turn writes one; 0 if it writes the memory."""
    stray: Mention | None = None
    """A rival that the memory holds from the first chunk that shows it, by mistake."""
    wrong_answer: str | None = None
    """An answer that is given by mistake."""
    wrong_evidence: bool = False
    """Whether the evidence is pointed at by mistake."""
    written: list[Written] = field(default_factory=list)
    _noted: Noted = field(default_factory=dict)
    _notes: dict[tuple[int, int], Noted] = field(default_factory=dict)
    _heads: list[Noted] = field(default_factory=list)
    _has_stray: bool = False
    _value: Value | None = None

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """What the turn should write; `seed` has no effect."""
        text, is_sample, says_news = self._turn(prompt)
        token_ids = [*self.tokenizer.encode(text)]
        if is_sample:
            completion = [*token_ids, self.tokenizer.end_token_id or 0]
            self.written.append(
                Written(
                    kind=prompt.kind,
                    prompt=list(prompt.token_ids),
                    completion=completion,
                    says_news=says_news,
                    is_tempting=not says_news and self._shows_rival(prompt),
                )
            )
        return Completion(
            token_ids=token_ids, text=text, finish_reason=FinishReason.STOP, num_prompt_tokens=len(prompt.token_ids)
        )

    def _shows_rival(self, prompt: Prompt) -> bool:
        span = prompt.span
        return span is not None and any(span.char_start <= each.char_start < span.char_end for each in self.fact.rivals)

    def _turn(self, prompt: Prompt) -> tuple[str, bool, bool]:
        """What to write, whether it is to be learnt, and whether it is news."""
        match prompt.kind:
            case "answer":
                return self._answer(self._noted)
            case "direct":
                return self._answer(self._seen_directly(prompt.shown))
            case "merge":
                return self._merge(prompt)
            case "read":
                return self._read(prompt)
            case "value":
                return self._typed(), True, True
            case "evidence":
                return self._evidence(prompt)
            case "support":
                return self._support(prompt)
        return self._update(prompt)

    def _update(self, prompt: Prompt) -> tuple[str, bool, bool]:
        assert prompt.span is not None
        start, end = prompt.span.char_start, prompt.span.char_end
        before, self._noted = self._noted, self._with_news(self._noted, start, end)
        strays = (
            self.stray is not None
            and not self._has_stray
            and start <= self.stray.char_start < self.stray.char_end <= end
        )
        self._has_stray |= strays
        if before == self._noted and self.keep_word and not strays:
            return self.keep_word, True, False
        if self.num_heads:
            return self._memory(self._new_note(before), with_stray=strays), not strays, True
        text = self._memory(self._noted, with_stray=strays)
        return text, not strays, strays or before != self._noted

    def _new_note(self, before: Noted) -> Noted:
        """The news of a section, and what goes with the oldest note if the new one takes its place."""
        left = self._heads[max(0, len(self._heads) - self.num_heads + 1) :]
        note = {
            mention: span
            for mention, span in self._noted.items()
            if before.get(mention) != span or not any(mention in head for head in left)
        }
        self._heads = [*left, note]
        return note

    def _read(self, prompt: Prompt) -> tuple[str, bool, bool]:
        assert prompt.span is not None
        number, index = map(int, prompt.path.split("/")[1:])
        found = self._with_news(self._noted, prompt.span.char_start, prompt.span.char_end)
        news = {mention: span for mention, span in found.items() if self._noted.get(mention) != span}
        self._notes[number, index] = news
        return (self._shown(news), True, True) if news else (self.keep_word, True, False)

    def _merge(self, prompt: Prompt) -> tuple[str, bool, bool]:
        number = int(prompt.path.split("/")[1])
        notes = self._text_of(prompt).rsplit("<notes>", 1)[1]
        merged = dict(self._noted)
        for first, last in SECTIONS.findall(notes):
            for index in range(int(first) - 1, int(last or first)):
                for mention, span in self._notes.get((number, index), {}).items():
                    merged[mention] = _joined(merged.get(mention), span)
        if prompt.writes is Writes.MEMORY:
            self._noted = merged
        return self._shown(merged), True, True

    def _with_news(self, noted: Noted, start: int, end: int) -> Noted:
        """The memory after a reader has seen these characters."""
        after = dict(noted)
        for number, mention in enumerate(self.fact.mentions):
            low, high = max(start, mention.char_start), min(end, mention.char_end)
            if low >= high or (
                mention.aliased and not _is_whole(after.get(number - 1), self.fact.mentions[number - 1])
            ):
                continue
            seen = self.story.text[low:high]
            continues = number in after and after[number][1] == low
            if continues or mention.name.casefold() in " ".join(seen.split()).casefold():
                after[number] = _joined(after.get(number), (low, high))
        return after

    def _shown(self, noted: Noted) -> str:
        """What is noted, as text: the question and the value; what gives no value yet in the document's words."""
        value = self._known(noted)
        if value is not None:
            return f"{self.fact.question} {value.text}"
        return "\n".join(self._said(number, *span) for number, span in sorted(noted.items()))

    def _said(self, number: int, start: int, end: int) -> str:
        mention, after = self.fact.mentions[number], self.fact.mentions[number + 1 :]
        if mention.value is None and after and after[0].name and _is_whole((start, end), mention):
            return f"About {mention.name}: called {after[0].name}"
        return f"About {self.fact.who}: {' '.join(self.story.text[start:end].split())}"

    def _memory(self, noted: Noted, *, with_stray: bool) -> str:
        lines = [self._shown(noted)] if noted else []
        if self.stray is not None and with_stray:
            assert self.stray.value is not None
            asked = self.fact.asked_of(self.stray.name)
            lines.append(f"{asked} {self.stray.value.text}")
        return "\n".join(lines) or self.first_memory

    def _known(self, noted: Noted) -> Value | None:
        """The value that follows from what is noted whole."""
        return self.fact.value(
            number for number, span in noted.items() if _holds(span, self.fact.mentions[number].value_span)
        )

    def _answer(self, noted: Noted) -> tuple[str, bool, bool]:
        self._value = self._known(noted)
        if self.wrong_answer is not None and self._value is not None:
            return f"\\boxed{{{self.wrong_answer}}}", False, True
        return (
            f"\\boxed{{{NOT_STATED_ENTRY if self._value is None else self._value.text}}}",
            True,
            self._value is not None,
        )

    def _seen_directly(self, shown: Sequence[tuple[int, int]]) -> Noted:
        chars = self.tokenizer.document(self.story.text).token_chars
        ends = [*chars, len(self.story.text)]
        noted: Noted = {}
        for start, end in shown:
            noted = self._with_news(noted, ends[start], ends[end])
        self._noted = dict(noted)
        return noted

    def _typed(self) -> str:
        value_type, value = self.fact.value_type, self._value
        if value_type.type in {AnswerType.NUMBER, AnswerType.DATE}:
            assert value is not None, "an answer that says not stated has no such turn"
            return value.typed
        wanted = None if value is None else value.typed or "stated"
        return next(number for number, choice in menu(value_type).items() if choice == wanted)

    def _evidence(self, prompt: Prompt) -> tuple[str, bool, bool]:
        sentences = self._sentences(prompt)
        wanted = [" ".join(self.story.text[start:end].split()) for start, end in self._resting()]
        right = [number for number, text in sentences.items() if any(_shares(text, each) for each in wanted)]
        if self.wrong_evidence:
            others = [number for number in sentences if number not in right][:1]
            return ", ".join(others or right) or NO_SENTENCE, False, True
        document = " ".join(self.story.text.split())
        is_clear = all(document.count(sentences[number]) == 1 for number in right)
        return ", ".join(right[:5]) or NO_SENTENCE, is_clear, bool(right)

    def _resting(self) -> list[tuple[int, int]]:
        """What is noted of the mentions that the answer rests on."""
        return [self._noted[number] for number in self.fact.rests_on(self._noted)]

    def _support(self, prompt: Prompt) -> tuple[str, bool, bool]:
        sentences = self._sentences(prompt).values()
        wanted = [" ".join(self.story.text[start:end].split()) for start, end in self._resting()]
        shown = [each in " ".join(sentences) for each in wanted]
        in_part = [any(_shares(sentence, each) for sentence in sentences) for each in wanted]
        says = Support.NOT_ENOUGH
        if any(shown):
            says = Support.CONTRADICTED if self.wrong_answer else Support.SUPPORTED if all(shown) else Support.PARTLY
        return next(number for number, support in SUPPORT_MENU.items() if support is says), shown == in_part, True

    def _sentences(self, prompt: Prompt) -> dict[str, str]:
        listed = self._text_of(prompt).rsplit("<sentences>\n", 1)[1].split("</sentences>")[0]
        return {number: " ".join(text.split()) for number, text in NUMBERED.findall(listed)}

    def _text_of(self, prompt: Prompt) -> str:
        return self.tokenizer.text_of(list(prompt.token_ids))


def _joined(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _holds(span: tuple[int, int], part: tuple[int, int]) -> bool:
    return span[0] <= part[0] and part[1] <= span[1]


def _is_whole(span: tuple[int, int] | None, mention: Mention) -> bool:
    return span is not None and _holds(span, (mention.char_start, mention.char_end))


def _shares(sentence: str, noted: str) -> bool:
    """Whether a sentence of the document is part of what was noted, or holds it."""
    return noted in sentence or (len(sentence) > 12 and sentence.strip("-* ") in noted)
