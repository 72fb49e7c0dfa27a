r"""What a completion says: after its thoughts, as an answer, or nothing at all.

Answers have the forms of the published agent (MemAgent, arXiv 2507.02259): `\boxed{...}`, and a sentence with "the
answer is". A completion that says nothing, or only refuses, did not read what its prompt showed.
"""

import re

from memagent_batch.config.agent import Extraction
from memagent_batch.loop.guides import Guide
from memagent_batch.types import FinishReason

OPENING = "<think>"
THOUGHT_END = "</think>"

THOUGHT_TAGS = re.compile(
    r"<[|/]*(?:\w+[:_])?(?:think(?:ing)?|thought|channel)\|?>"  # Seed-OSS, EXAONE Deep, Command A, gpt-oss, Gemma 4
    r"|(?-i:\[/?THINK\])"  # Mistral
    r"|◁/?think▷",  # Kimi
    re.IGNORECASE,
)
"""Tags of thoughts and channels, by the names that families of models give them."""

BOX = "\\boxed{"
SENTENCE = re.compile(r"\bthe answer is\b[ \t*]*(?P<colon>:?)", re.IGNORECASE)

EMPHASIS = " \t\r*"
"""White space and Markdown's stars, which surround an answer and are not part of it."""

REFUSAL_CHARS = 500
"""A longer completion says more than that it refuses, characters."""

APOLOGY = (
    r"(?:i(?:'m| am) (?:\w+ )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately"
    r"|(?:es )?tut mir (?:\w+ )?leid|entschuldigung|leider|(?:je suis )?désolée?|lo siento|lo lamento|mi dispiace"
    r"|sinto muito|desculpe|lamento|het spijt me|helaas)[,.;:!]?\s+(?:(?:but|aber|mais|pero|ma|mas|maar)\s+)?"
)
"""How a refusal may begin."""

CANNOT = r"i(?:'m| am)? (?:can't|can ?not|won't|will not|unable to|not able to|decline to|must decline to)"
REQUEST = r"(?:request|question|prompt|content|topic|task|conversation)s?"
"""What a refusal is of. One of anything else may be quoted from the document."""
REFUSALS = (
    rf"(?:as an ai[\w ]*,\s+)?{CANNOT} (?:comply|(?:assist|help|provide (?:assistance|help))(?: you)?"
    rf" with (?:that|this|it|(?:that|this|your|such)(?: \w+)? {REQUEST}))",
    r"(?:ich kann|kann ich|dabei kann ich|damit kann ich) (?:(?:dir|ihnen|dabei|damit|hierbei|leider|bei dieser anfrage"
    r"|bei ihrer anfrage) )*nicht (?:weiter)?(?:helfen|behilflich sein)",
    r"(?:ich kann|kann ich) (?:diese|ihre|deine) anfrage (?:leider )?nicht (?:erfüllen|bearbeiten|beantworten)",
    r"je ne (?:peux|puis) pas (?:vous |t'|t’)?(?:aider|assister|répondre à (?:cette|votre) (?:demande|requête))"
    r"(?: (?:avec|à|pour|dans) (?:cela|ça|cette|votre)[^.\n]{0,40})?",
    r"no puedo (?:ayudarte|ayudarle|ayudar|asistir|cumplir)(?: (?:con|en) (?:eso|esto|esa|esta|tu|su)[^.\n]{0,40})?",
    r"non posso (?:aiutarti|aiutarla|aiutare|assisterti)(?: (?:con|in) [^.\n]{0,40})?",
    r"não posso (?:ajudar|ajudá-l[oa]|atender)(?: (?:com|a) [^.\n]{0,40})?",
    r"(?:ik kan|kan ik) (?:(?:je|u|daar|hier|daarbij|hierbij) )*niet (?:(?:mee|bij) )?helpen",
)
AFTER_APOLOGY = (
    rf"{CANNOT} (?:assist|help|comply|do that|(?:engage|continue|proceed)(?: with (?:that|this|your) {REQUEST})?"
    rf"|(?:fulfill?|process|complete|respond to|comply with|discuss) (?:that|this|your) {REQUEST})(?: you)?"
)
"""Too little for a refusal unless an apology stands before it."""
CJK_REFUSALS = (
    r"(?:很|非常)?(?:抱歉|对不起|對不起)[，,。！!]?\s*(?:但)?我?(?:无法|不能|無法)(?:为您|为你|為您)?"
    r"(?:协助|帮助|提供帮助|满足|处理|協助|幫助|處理)[^。\n]{0,20}",
    r"(?:申し訳(?:ありません|ございません)|すみません)(?:が)?[、,。]?\s*[^。\n]{0,20}"
    r"(?:お手伝い|お応え|対応)(?:することは|は)?(?:できません|いたしかねます)",
)
REFUSAL = re.compile(
    rf"(?:(?:{APOLOGY})?(?:{'|'.join(REFUSALS)})|{APOLOGY}{AFTER_APOLOGY}|{'|'.join(CJK_REFUSALS)})(?:[.!。！]|$)",
    re.IGNORECASE,
)
"""The first sentence of a refusal: of the request, not a statement on what the document says."""


def after_thoughts(text: str, *, opens_thought: bool = False) -> str | None:
    """What a completion says after its thoughts; the whole text where it has none.

    A thought begins where the completion begins, and ends at the first `</think>`. Another may follow it at once. Tags
    that a memory or answer only mentions further on change nothing, so that a document about such tags loses no notes.

    `opens_thought`: whether the prompt ended inside a thought, so that the completion begins there.

    Returns:
        The text, without white space around it where a thought was cut off; None where the completion ends inside one.
    """
    while opens_thought or text.lstrip().startswith(OPENING):
        _, end, answer = text.partition(THOUGHT_END)
        if not end:
            return None
        text, opens_thought = answer.strip(), False
    return text


def ends_in_thought(prompt: str) -> bool:
    """Whether the end of a prompt, after the user's message, leaves a thought open."""
    return prompt.rfind(OPENING) > prompt.rfind(THOUGHT_END)


def other_thought_tags(template: str) -> list[str]:
    """Tags in the text of a chat template that mark thoughts or channels in another way than `<think>`."""
    return sorted({tag for tag in THOUGHT_TAGS.findall(template) if tag not in (OPENING, THOUGHT_END)})


def extract_answer(response: str, *, extraction: Extraction) -> str | None:
    """The answer in a response; None where the response does not hold one in that form. Thoughts hold none."""
    text = after_thoughts(response) or ""
    match extraction:
        case Extraction.BOXED:
            return _find_boxed(text)
        case Extraction.SENTENCE:
            return _find_sentence(text)
        case Extraction.AUTO:
            boxed = _find_boxed(text)
            return _find_sentence(text) if boxed is None else boxed
        case Extraction.RAW:
            return text.strip() or None


def closed_text(text: str, start: int) -> str | None:
    """Returns the text from `start`, just after a `{`, up to the matching `}`; None if the brace is never closed."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return None


def _find_boxed(response: str) -> str | None:
    """Content of the last box whose braces close."""
    start = response.rfind(BOX)
    while start >= 0:
        content = closed_text(response, start + len(BOX))
        if content is not None:
            return content.strip() or None
        start = response.rfind(BOX, 0, start)
    return None


def _find_sentence(response: str) -> str | None:
    end = len(response)
    for match in reversed(list(SENTENCE.finditer(response))):
        line, _, below = response[match.end() : end].partition("\n")
        answer = _strip_emphasis(line) or (_strip_emphasis(below.strip().split("\n", 1)[0]) if match["colon"] else "")
        if answer:
            return answer
        end = match.start()
    return None


def _strip_emphasis(line: str) -> str:
    """A line without emphasis and full stop."""
    return line.strip(EMPHASIS).removesuffix(".").strip(EMPHASIS)


def why_unanswered(
    text: str,
    *,
    finish_reason: FinishReason,
    max_tokens: int,
    guide: Guide | None = None,
    opens_thought: bool = False,
) -> str | None:
    """Why a completion says nothing of what its prompt showed; None if it says something.

    `opens_thought`: whether the prompt ended inside a thought, so that the completion begins there.
    """
    if guide is not None and guide.allows(text):
        return None
    answer = text if guide is not None else after_thoughts(text, opens_thought=opens_thought)
    if answer is not None and not is_blank(answer):
        is_refused = guide is None and is_refusal(answer)
        return f"the model refused: {' '.join(answer.split())[:120]}" if is_refused else None
    thought = "a thought that is not closed" if answer is None else "nothing but a thought"
    wrote = "nothing" if is_blank(text) else thought
    if finish_reason is FinishReason.LENGTH:
        return (
            f"the model wrote {wrote}, and had used up its budget of {max_tokens} tokens: give it room to think "
            "(openai.thinking_tokens with a chat API; else policy.memory_tokens and policy.answer_tokens), or let it "
            "think less"
        )
    return f"the model wrote {wrote}, and ended by itself"


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: no characters but white space, controls and marks of no width."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def is_refusal(text: str) -> bool:
    """Whether a text is a refusal and nothing else, in one of the languages that are known here.

    A sentence that the document does not say something is an answer, and no refusal.
    """
    plain = text.strip().replace("\u2019", "'")
    return len(plain) <= REFUSAL_CHARS and REFUSAL.match(plain) is not None
