"""Peer: the memory loop as rounds of `ray.data.llm`, one for each chunk index, its memories carried along as a column.

A processor is a fixed chain of stages, so the loop is driven from outside: round k is one execution over all documents
that still have a k-th chunk. Its stage is the one that sends HTTP requests: the stage with vLLM inside starts its
engine again in each execution, by its source.
"""

import argparse
import os
import time
from functools import partial
from typing import Any

import ray
from ray.data import DataContext
from ray.data.llm import HttpRequestProcessorConfig, build_processor

from benchmarks.peer_loop import PeerResult, TextDocument, Work, chat_body, remember, run_as_command

BATCHES_AT_ONCE = 4
"""Batches that Ray Data gives an async stage at once; times the batch size, that is the requests in flight."""
Row = dict[str, Any]


def run(work: Work, options: argparse.Namespace) -> PeerResult:
    """Reads every document in a session of Ray's."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with ray.init(include_dashboard=False, log_to_driver=False):
        DataContext.get_current().enable_progress_bars = False
        return _read_all(work, options)


def _read_all(work: Work, options: argparse.Namespace) -> PeerResult:
    batch = {} if options.concurrency is None else {"batch_size": max(1, options.concurrency // BATCHES_AT_ONCE)}
    config = HttpRequestProcessorConfig(url=f"{options.url}/v1/chat/completions", concurrency=1, **batch)
    processor = build_processor(config, preprocess=partial(_request, model=options.model), postprocess=_response)
    _round(processor, [("warm-up", "Hello.", 1)])  # starts Ray's worker processes, before the clock
    began, num_turns = time.time(), 0
    memories = {document.question_id: work.first_memory for document in work.documents}
    for index in range(max(len(document.chunks) for document in work.documents)):
        left = [document for document in work.documents if index < len(document.chunks)]
        requests = [_update(work, document, index, memories[document.question_id]) for document in left]
        written = _round(processor, requests)
        memories |= {name: remember(memories[name], text) for name, text in written.items()}
        num_turns += len(requests)
    requests = [_answer(work, document, memories[document.question_id]) for document in work.documents]
    responses = _round(processor, requests)
    return PeerResult(seconds=time.time() - began, num_turns=num_turns + len(requests), responses=responses)


def _update(work: Work, document: TextDocument, index: int, memory: str) -> tuple[str, str, int]:
    return document.question_id, work.update_message(document, index, memory), work.memory_tokens


def _answer(work: Work, document: TextDocument, memory: str) -> tuple[str, str, int]:
    return document.question_id, work.answer_message(document, memory), work.answer_tokens


def _round(processor: Any, requests: list[tuple[str, str, int]]) -> dict[str, str]:
    """One execution over the documents of a round: what was written, by document id."""
    rows = [{"question_id": name, "message": message, "max_tokens": tokens} for name, message, tokens in requests]
    done = processor(ray.data.from_items(rows, override_num_blocks=1)).take_all()
    return {row["question_id"]: row["text"] for row in done}


def _request(row: Row, *, model: str) -> Row:
    return {"payload": chat_body(model, row["message"], row["max_tokens"])}


def _response(row: Row) -> Row:
    return {"question_id": row["question_id"], "text": row["http_response"]["choices"][0]["message"]["content"] or ""}


if __name__ == "__main__":
    run_as_command(__doc__, run)
