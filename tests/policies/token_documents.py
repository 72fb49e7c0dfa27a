"""Documents and prompts without a text, for tests: a document has the tokens 100, 101, ..., each of one character."""

from memagent_batch.loop.prompts import Memory, PromptTokens, Slot, TokenTemplate
from memagent_batch.types import Document, QuestionTokens

PROMPTS = PromptTokens(
    update=TokenTemplate(pieces=(Slot.QUESTION, Slot.MEMORY, Slot.CHUNK)),
    answer=TokenTemplate(pieces=(Slot.QUESTION, Slot.MEMORY)),
    direct=TokenTemplate(pieces=(Slot.QUESTION, Slot.CHUNK)),
    merge=TokenTemplate(pieces=(Slot.QUESTION, Slot.MEMORY, Slot.NOTES)),
    first_memory=Memory(token_ids=(8,), text="none"),
    control_token_ids=frozenset(),
    encode=str.encode,
    decode=str,
)
QUESTION = QuestionTokens(token_ids=[50, 51])


def document_of(num_tokens: int) -> Document:
    token_ids = [100 + token for token in range(num_tokens)]
    return Document(token_ids=token_ids, token_chars=range(num_tokens), num_chars=num_tokens)
