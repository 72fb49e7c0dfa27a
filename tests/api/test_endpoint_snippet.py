"""The snippet of docs/how-to/python.md that reads through an endpoint, run as it is against a chat server."""

import json
import re
from pathlib import Path

from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "python.md"
ADDRESS = "http://127.0.0.1:8000/v1"


def test_snippet_of_the_docs_reads_through_a_chat_api() -> None:
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if ADDRESS in code]
    names: dict[str, str] = {"text": "It rained. " * 3000}
    with scripted_server(chat_reply(r"\boxed{Ann}")) as script:
        script.models = Reply(body=json.dumps({"data": [{"id": "the-served-name"}]}).encode())
        exec(snippet.replace(ADDRESS, script.base_url), names)
    assert names["answer"] == "Ann"
    assert len(script.requests) > 2
