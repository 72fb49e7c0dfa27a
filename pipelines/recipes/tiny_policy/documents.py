"""Held-out documents that tell a story: words, keys and texts that the tiny policy never saw."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat

from memagent_batch.evaluation.needles.facts import Split, make_key, make_number
from memagent_batch.evaluation.needles.stories import Story, StoryKind, make_story
from memagent_batch.evaluation.needles.tasks import Haystack, haystack_units

BLOCK_UNITS = 16
"""Units that are measured at once."""


class Text(StrEnum):
    """What a document is made of."""

    NOISE = "noise"
    """RULER's noise paragraph."""
    RUNNING = "running"
    """Written prose."""
    LEGAL = "legal"
    """Clauses of a licence."""
    CODE = "code"
    """Lines of a program."""
    TABLE = "table"
    """Rows of a table."""
    ONE_WORD = "one word"
    """The same word thousands of times."""


CLAUSES = (
    "Subject to Section {small}, the Licensee shall not assign, sublicense or otherwise transfer this Agreement.",
    "Notwithstanding the foregoing, nothing herein shall be construed as a waiver of any right under clause {small}.",
    "The Parties agree that any dispute arising out of Schedule {small} shall be finally settled by arbitration.",
    '"Confidential Information" means all information disclosed by either Party, whether orally or in writing.',
    "In no event shall the aggregate liability of the Supplier exceed the fees paid in the preceding {small} months.",
    "This Agreement may be terminated by either Party upon {small} days' prior written notice.",
    "Each Party represents and warrants that it has full corporate power and authority to enter into this Agreement.",
    "The provisions of Articles {small} and {small} survive expiry or termination for any reason whatsoever.",
)
"""Clauses, with slots for small numbers."""

STATEMENTS = (
    "    for (int i = 0; i < {small}; i++) {{ buffer[i] = queue.poll(i, {small}L); }}",
    "    if (!session.isOpen() || retries > {small}) {{ throw new IllegalStateException(); }}",
    "public static final int MAX_{small} = {small};",
    "  return rows.stream().filter(r -> r.id() != {small}).map(Row::copy).toList();",
    "// TODO: the lock is held twice here, see issue #{small}",
    "}}",
    '    logger.debug("flushed {small} of {small}", count);',
    "private void onClose(Channel c, int code) {{",
)
"""Lines of a language that is not in the training text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutDocument:
    """A document, its question and the story that it tells."""

    text: str
    """The document."""
    story: Story
    """Question and statements."""
    met: tuple[int, ...]
    """Statements that it holds, in its order; none where the answer is not stated."""
    spans: tuple[tuple[int, int], ...]
    """First character of each of these, and the one after the last."""


def make_document(
    rng: random.Random,
    *,
    text: Text,
    kind: StoryKind,
    num_tokens: int,
    length_of: Callable[[str], int],
    num_rivals: int,
    is_told: bool = True,
) -> HeldOutDocument:
    """A document of about this many tokens, its statements in their order at random places, links in any order.

    Args:
        rng: source of every choice.
        text: what it is made of.
        kind: the story.
        num_tokens: length.
        length_of: measures a text.
        num_rivals: sentences that are easily mixed up with the statements.
        is_told: whether it holds the statements; the rivals it always holds.
    """
    story = make_story(rng, kind, split=Split.HELD_OUT)
    met = list(range(len(story.statements))) if is_told else []
    rivals = story.rivals[:num_rivals]
    gap = "\n" if kind is StoryKind.CHAIN or text in (Text.CODE, Text.TABLE) else " "
    hidden = [f"{gap}{story.statements[place]}{gap.strip(' ')}" for place in met]
    others = [f"{gap}{rival}{gap.strip(' ')}" for rival in rivals]
    units = _units(rng, text, num_tokens - length_of("".join(hidden + others)), length_of=length_of)
    places = sorted(rng.randint(0, len(units)) for _ in hidden)
    at: list[list[str]] = [[] for _ in range(len(units) + 1)]
    for place, sentence in zip(places, hidden, strict=True):
        at[place].append(sentence)
    for sentence in others:
        at[rng.randint(0, len(units))].append(sentence)
    whole = "".join(chain.from_iterable(chain(here, (unit,)) for here, unit in zip(at, [*units, ""], strict=True)))
    whole = whole.strip()
    starts = [whole.index(story.statements[place]) for place in met]
    spans = [(start, start + len(story.statements[place])) for start, place in zip(starts, met, strict=True)]
    return HeldOutDocument(text=whole, story=story, met=tuple(met), spans=tuple(spans))


def _units(rng: random.Random, text: Text, num_tokens: int, *, length_of: Callable[[str], int]) -> list[str]:
    source = _endless(rng, text)
    units: list[str] = []
    length = 0
    while length < num_tokens:
        block = [next(source) for _ in range(BLOCK_UNITS)]
        length += length_of("".join(block))
        units += block
    return units


def _endless(rng: random.Random, text: Text) -> Iterator[str]:
    match text:
        case Text.NOISE | Text.RUNNING:
            return haystack_units(rng, haystack=Haystack(text.value), split=Split.HELD_OUT)
        case Text.LEGAL:
            return (_filled(rng, rng.choice(CLAUSES), mark=" ") for _ in repeat(None))
        case Text.CODE:
            return (_filled(rng, rng.choice(STATEMENTS), mark="\n") for _ in repeat(None))
        case Text.TABLE:
            return (_row(rng) for _ in repeat(None))
        case Text.ONE_WORD:
            word = make_key(rng, split=Split.HELD_OUT).partition("-")[0]
            return repeat(f" {word}")


def _row(rng: random.Random) -> str:
    return f"\n{make_key(rng, split=Split.HELD_OUT)}, {make_number(rng)}, {rng.random():.3f}"


def _filled(rng: random.Random, form: str, *, mark: str) -> str:
    pieces = form.replace("{{", "\0").replace("}}", "\1").split("{small}")
    filled = pieces[0] + "".join(f"{rng.randint(2, 90)}{piece}" for piece in pieces[1:])
    return mark + filled.replace("\0", "{").replace("\1", "}")
