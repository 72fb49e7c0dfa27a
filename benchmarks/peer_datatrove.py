"""Peer: datatrove's InferenceRunner with the memory loop as its rollout function. Runs in `.venv-peers`."""

import argparse
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
from datatrove.pipeline.writers import JsonlWriter

from benchmarks.peer_loop import Clock, PeerResult, TextDocument, Work, read, run_as_command

Generate = Callable[[dict[str, Any]], Awaitable[Any]]
"""What datatrove gives a rollout function: a request body in, an InferenceResult out."""


def run(work: Work, options: argparse.Namespace) -> PeerResult:
    """Reads every document; the responses go through datatrove's writer into a folder as well, as in any use of it."""
    clock = Clock()
    responses: dict[str, str] = {}
    chosen = {} if options.concurrency is None else {"max_concurrent_generations": options.concurrency}
    config = InferenceConfig(
        server_type="endpoint",
        endpoint_url=options.url,
        model_name_or_path=options.model,
        use_chat=True,
        default_generation_params={"temperature": 0.0},
        **chosen,
    )
    documents = [
        Document(text="", id=each.question_id, metadata={"question": each.question, "chunks": each.chunks})
        for each in work.documents
    ]
    with tempfile.TemporaryDirectory() as folder:
        runner = InferenceRunner(
            rollout_fn=partial(_rollout, work=work, clock=clock, responses=responses),
            config=config,
            output_writer=JsonlWriter(folder, compression=None),
        )
        runner.run(documents)
    return clock.result(responses)


async def _rollout(
    document: Document, generate: Generate, *, work: Work, clock: Clock, responses: dict[str, str]
) -> str:
    text_document = TextDocument(
        question_id=document.id, question=document.metadata["question"], chunks=document.metadata["chunks"]
    )
    ask = partial(clock.time, partial(_complete, generate))
    responses[document.id] = await read(text_document, work, ask=ask)
    return responses[document.id]


async def _complete(generate: Generate, message: str, max_tokens: int) -> str:
    result = await generate({"messages": [{"role": "user", "content": message}], "max_tokens": max_tokens})
    text: str = result.text
    return text


if __name__ == "__main__":
    run_as_command(__doc__, run)
