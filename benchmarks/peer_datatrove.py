"""Peer: datatrove's InferenceRunner with the memory loop as its rollout function. Runs in `.venv-peers`.

Its arguments are two files of JSON: the work, as `benchmarks.peers` makes it, and the result.
"""

import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

Ask = Callable[[str, int], Awaitable[str]]
"""One turn: a user message and the most tokens of its completion in, the text of the completion out."""


def run(work: Mapping[str, Any]) -> dict[str, Any]:
    """Reads every document; the responses go through datatrove's writer into a folder as well, as in any use of it."""
    from datatrove.data import Document
    from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
    from datatrove.pipeline.writers import JsonlWriter

    in_flight = work["in_flight"]
    config = InferenceConfig(
        server_type="endpoint",
        endpoint_url=work["url"],
        model_name_or_path=work["model"],
        use_chat=True,
        default_generation_params={"temperature": 0.0},
        **({} if in_flight is None else {"max_concurrent_generations": in_flight}),
    )
    times: list[float] = []
    responses: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        runner = InferenceRunner(
            rollout_fn=partial(_rollout, work=work, times=times, responses=responses),
            config=config,
            output_writer=JsonlWriter(folder, compression=None),
        )
        runner.run([Document(text="", id=each["question_id"], metadata=each) for each in work["documents"]])
    return {"seconds": max(times) - min(times), "num_turns": len(times) // 2, "responses": responses}


async def read(document: Mapping[str, Any], work: Mapping[str, Any], *, ask: Ask) -> str:
    """Reads a document chunk by chunk and returns the response of the answer turn, as the policy `overwrite` does."""
    question, memory = document["question"], work["first_memory"]
    for chunk in document["chunks"]:
        written = await ask(work["update"].format(question=question, memory=memory, chunk=chunk), work["memory_tokens"])
        memory = written if written.strip() else memory
    return await ask(work["answer"].format(question=question, memory=memory), work["answer_tokens"])


async def _rollout(
    document: Any, generate: Any, *, work: Mapping[str, Any], times: list[float], responses: dict[str, str]
) -> str:
    ask = partial(_complete, generate=generate, times=times)
    responses[document.id] = await read(document.metadata, work, ask=ask)
    return responses[document.id]


async def _complete(message: str, max_tokens: int, *, generate: Any, times: list[float]) -> str:
    """One turn; notes when its request was sent, and when its response was there."""
    times.append(time.time())
    result = await generate({"messages": [{"role": "user", "content": message}], "max_tokens": max_tokens})
    times.append(time.time())
    text: str = result.text
    return text


if __name__ == "__main__":
    work_file, result_file = map(Path, sys.argv[1:])
    result_file.write_text(json.dumps(run(json.loads(work_file.read_text()))))
