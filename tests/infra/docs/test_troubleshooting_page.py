"""Messages on the page are those that the code prints: each part between dots is in the code or in mistakes.yaml."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
SECTIONS = PAGE.read_text(encoding="utf-8").split("## Answers that look wrong")[0]


@cache
def printed() -> str:
    """All texts in the code, and what mistakes end with."""
    texts = [(ROOT / "tests" / "cli" / "mistakes.yaml").read_text(encoding="utf-8")]
    for folder in ("memagent_batch",):
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts += [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    return "\n".join(texts)


def messages() -> list[str]:
    return re.findall(r"^\| `(.*?)` \| ", SECTIONS, flags=re.MULTILINE)


@pytest.mark.parametrize("message", messages())
def test_message_on_the_page_is_printed_by_the_code(message: str) -> None:
    missing = [part for part in message.split("…") if part.strip(" ,;") and part.strip(" ,;") not in printed()]
    assert missing == []


def test_page_has_messages() -> None:
    assert len(messages()) > 40
