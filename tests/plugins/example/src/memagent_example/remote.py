"""An engine that asks a service of yours, which takes text and gives text."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from memagent_batch.errors import EngineRequestError
from memagent_batch.loop.engines.engine import Engine, EngineContext, require_fit
from memagent_batch.types import Completion, FinishReason, Prompt


@dataclass(kw_only=True)
class Remote(Engine):
    """One request for each turn."""

    kind: ClassVar[str] = "remote"
    secrets: ClassVar[frozenset[str]] = frozenset({"token"})

    url: str
    token: str = ""

    def open(self, context: EngineContext) -> Self:
        """Keeps what it reads with; nothing is started."""
        self._window_tokens, self._tokenizer = context.window_tokens, context.load_tokenizer()
        return self

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Sends the text of the prompt; an error costs its reading alone."""
        require_fit(prompt, window_tokens=self._window_tokens)
        began = time.monotonic()
        try:
            text = await asyncio.to_thread(self._ask, prompt, seed)
        except OSError as error:
            raise EngineRequestError(f"turn {prompt.path}: {self.url} gave no answer: {error}") from error
        token_ids = self._tokenizer.encode(text)
        is_cut = len(token_ids) > prompt.max_tokens
        token_ids = token_ids[: prompt.max_tokens]
        return Completion(
            token_ids=token_ids,
            text=self._tokenizer.decode(token_ids) if is_cut else text,
            finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
            num_prompt_tokens=len(prompt.token_ids),
            engine_seconds=time.monotonic() - began,
        )

    def identity(self) -> Mapping[str, Any]:
        """What decides a result: not the token, nor where the service is."""
        return {"kind": self.kind}

    def _ask(self, prompt: Prompt, seed: int) -> str:
        body = {"text": self._tokenizer.text_of(list(prompt.token_ids)), "limit": prompt.max_tokens, "seed": seed}
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as reply:
            return str(json.load(reply)["text"])
