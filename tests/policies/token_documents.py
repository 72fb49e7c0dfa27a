"""Documents without a text, for tests: the tokens 100, 101, ..., each of one character."""

from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import QuestionTokens

QUESTION = QuestionTokens(token_ids=[50, 51])


def document_of(num_tokens: int) -> Document:
    """A document of so many tokens."""
    token_ids = [100 + token for token in range(num_tokens)]
    return Document(token_ids=token_ids, token_chars=range(num_tokens), num_chars=num_tokens)
