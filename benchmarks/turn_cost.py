"""CPU time of a turn beside the model's own work, part by part: microseconds a turn, for a short and a long prompt.

Each part runs alone in this process, without Ray and without an engine; CPU time, so that other work on the machine
counts little. `vllm_decode` is what decoding inside vLLM would cost; the engine adapter does `decode` in its place.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from transformers import PreTrainedTokenizerFast

from memagent_batch.domain.addresses import ReadingAddress, token_hash
from memagent_batch.domain.document import ChunkSpan
from memagent_batch.domain.prompts import Slot
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.tasks import make_task
from memagent_batch.files.location import Location
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.settings import LogSettings, Settings
from memagent_batch.wiring import TINY_MODEL, make_prompt_tokens

WRITTEN = "The number of amber-falcon is 4827193. The number of quiet-river is 12345, and that of green-lamp 99."
NUM_TURNS = 200
"""Turns of one measurement."""

Work = Callable[[int], object]
"""Does its part of so many turns."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=[1300, 6500], help="tokens (default: 1300 6500)"
    )
    options.add_argument("--runs", type=int, default=5, help="measurements of each part (default: 5)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    for num_tokens in known.prompt_tokens:
        for part, work in _parts(num_tokens).items():
            costs = [_cost(work) for _ in range(known.runs)]
            figures = {
                "benchmark": "turn_cost",
                "prompt_tokens": num_tokens,
                "part": part,
                "runs": known.runs,
                "microseconds_median": round(statistics.median(costs), 1),
                "microseconds_range": [round(min(costs), 1), round(max(costs), 1)],
            }
            print(json.dumps(figures), flush=True)
            if not known.json:
                print(f"{num_tokens} tokens, {part}: {statistics.median(costs):,.0f} us a turn", flush=True)


def _cost(work: Work) -> float:
    """CPU microseconds of one turn."""
    work(1)
    began = time.process_time()
    work(NUM_TURNS)
    return (time.process_time() - began) / NUM_TURNS * 1e6


def _parts(num_tokens: int) -> dict[str, Work]:
    """What a turn does, by name."""
    tokenizer = load_tokenizer(str(TINY_MODEL))
    text = make_task(random.Random(0), length=num_tokens, length_of=lambda text: len(tokenizer.encode(text))).document
    token_ids = tokenizer.encode(text)[:num_tokens]
    written, full = tokenizer.encode(WRITTEN), PreTrainedTokenizerFast.from_pretrained(TINY_MODEL)
    prompt = Prompt(
        path="update/7",
        kind="update",
        token_ids=token_ids,
        max_tokens=64,
        span=ChunkSpan(index=7, token_start=0, token_end=num_tokens, char_start=0, char_end=len(text)),
    )
    completion = Completion(token_ids=written, text=WRITTEN, finish_reason=FinishReason.STOP)
    template = make_prompt_tokens(Settings(documents="documents", ask=("Who?",), output="run")).update
    slots = {Slot.QUESTION: written, Slot.MEMORY: written, Slot.CHUNK: token_ids}
    return {
        "tokenise": partial(_repeat, partial(tokenizer.encode_document, text)),
        "fill_prompt": partial(_repeat, partial(template.fill, slots)),
        "hash_prompt": partial(_repeat, partial(token_hash, token_ids)),
        "log": partial(_log, prompt, completion),
        "decode": partial(_repeat, partial(tokenizer.continuation, written, after=token_ids)),
        "vllm_decode": partial(_repeat, partial(_vllm_decode, full, token_ids, written)),
    }


def _repeat(work: Callable[[], object], num_turns: int) -> None:
    for _ in range(num_turns):
        work()


def _log(prompt: Prompt, completion: Completion, num_turns: int) -> None:
    """Records turns and writes them as one file of the turn log."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_record(Location(uri=folder, storage_options={}), prompt, completion, num_turns))


async def _record(output: Location, prompt: Prompt, completion: Completion, num_turns: int) -> None:
    log = TurnLogWriter(output, run_id="run", writer_id="writer", settings=LogSettings(flush_bytes=2**30))
    address = ReadingAddress(document_hash="0" * 64, question_hash="0" * 64, sample=0, reader_fingerprint="0" * 64)
    for _ in range(num_turns):
        log.record_turn(address, prompt, completion)
    await log.close()


def _vllm_decode(tokenizer: PreTrainedTokenizerFast, token_ids: list[int], written: list[int]) -> str:
    """What vLLM 0.32 does where it is asked for the text."""
    from vllm import SamplingParams
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    request: Any = SimpleNamespace(request_id="", sampling_params=SamplingParams(), prompt_token_ids=token_ids)
    detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
    for token_id in written:
        detokenizer.update([token_id], stop_terminated=False)
    return str(detokenizer.get_next_output_text(finished=True, delta=False))


if __name__ == "__main__":
    main()
