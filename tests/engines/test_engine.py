import pytest

from memagent_batch.document import ChunkSpan
from memagent_batch.errors import PromptTooLongError
from memagent_batch.loop.engines.engine import require_fit
from memagent_batch.types import Prompt

CHUNK = ChunkSpan(index=0, token_start=0, token_end=9, char_start=0, char_end=20)


@pytest.mark.parametrize(
    ("prompt", "setting"),
    [
        (Prompt(path="update/0", kind="update", token_ids=range(9), max_tokens=2, span=CHUNK), "policy.chunk_tokens"),
        (Prompt(path="direct", kind="direct", token_ids=range(9), max_tokens=2, shown=[(0, 9)]), "policy.chunk_tokens"),
        (Prompt(path="answer", kind="answer", token_ids=range(9), max_tokens=2), "policy.memory_tokens"),
        (
            Prompt(path="evidence", kind="evidence", token_ids=range(9), max_tokens=2, fingerprint="f"),
            "follow_ups.evidence_tokens, policy.memory_tokens or policy.answer_tokens",
        ),
    ],
)
def test_prompt_that_is_too_long_names_the_settings_of_what_it_shows(prompt: Prompt, setting: str) -> None:
    require_fit(prompt, window_tokens=11)
    with pytest.raises(PromptTooLongError, match=f"window of 10; lower {setting}, or raise window_tokens"):
        require_fit(prompt, window_tokens=10)
