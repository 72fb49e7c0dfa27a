"""An OpenAI-compatible endpoint on loopback that completes every prompt with the same words, as `vllm serve` does."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.tokens.tokenizer import Tokenizer

MODEL = "loopback"
"""Name under which it serves."""
COMPLETION = r"The answer is \boxed{17}."


@contextmanager
def loopback_endpoint(*, turn_seconds: float) -> Iterator[str]:
    """Its URL, without a path, while the block lasts."""
    words = Tokenizer(str(TINY_MODEL)).encode(COMPLETION)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.say({"data": [{"id": MODEL}]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(turn_seconds)
            token_ids = words[: request["max_tokens"]]
            reason = "stop" if len(token_ids) == len(words) else "length"
            choice = {"text": COMPLETION, "token_ids": token_ids, "finish_reason": reason}
            self.say({"choices": [choice], "usage": {"prompt_tokens": len(request["prompt"])}})

        def say(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
