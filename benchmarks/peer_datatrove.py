"""Peer: datatrove's InferenceRunner with the memory loop as its rollout function. Runs in `.venv-peers`."""

import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
from datatrove.pipeline.writers import JsonlWriter

from benchmarks.peer_loop import Clock, PeerResult, TextDocument, Work, load_work, peer_options, read, save

Generate = Callable[[dict[str, Any]], Awaitable[Any]]
"""What datatrove gives a rollout function: a request body in, an InferenceResult out."""


def run(work: Work, *, url: str, model: str, concurrency: int | None, folder: Path) -> PeerResult:
    """Reads every document; the responses go through datatrove's writer into a folder as well, as in any use of it."""
    clock = Clock()
    responses: dict[str, str] = {}
    chosen = {} if concurrency is None else {"max_concurrent_generations": concurrency}
    config = InferenceConfig(
        server_type="endpoint",
        endpoint_url=url,
        model_name_or_path=model,
        use_chat=True,
        default_generation_params={"temperature": 0.0},
        **chosen,
    )
    runner = InferenceRunner(
        rollout_fn=partial(_rollout, work=work, clock=clock, responses=responses),
        config=config,
        output_writer=JsonlWriter(str(folder), compression=None),
    )
    runner.run(
        Document(
            text="",
            id=document.question_id,
            metadata={"question": document.question, "chunks": document.chunks},
        )
        for document in work.documents
    )
    return PeerResult(seconds=clock.ended - clock.began, num_turns=clock.num_turns, responses=responses)


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


def main() -> None:
    options = peer_options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        result = run(
            load_work(options.work),
            url=options.url,
            model=options.model,
            concurrency=options.concurrency,
            folder=Path(folder),
        )
    save(result, options.output)


if __name__ == "__main__":
    main()
