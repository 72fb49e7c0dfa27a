"""The main job as its users run it: its own process, real Ray, real vLLM, the shipped policy.

Its engine is killed once while it reads.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.harness import make_tasks
from memagent_batch.cli import main as cli
from memagent_batch.data.store.location import Location
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.prompt_sets.built_in import DEFAULT_PROMPTS
from memagent_batch.loop.prompts import Slot
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.run.history import find_run
from tests.faults.corpus import Corpus
from tests.faults.killed_job import KilledJob, Role
from tests.tables import table_rows

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

CONFIG = Path(__file__).parents[2] / "jobs" / "tiny.yaml"
LENGTHS = (300, 1_024, 2_500, 4_000, 6_000, 12_000, 20_000)
CHUNK_TOKENS, OVERLAP_TOKENS, MEMORY_TOKENS, ANSWER_TOKENS = 1024, 64, 128, 64
"""As in the job file."""
CALLS_BEFORE_KILL = 10
COUNTED = ("--vllm.engine-args", json.dumps({"enable_log_requests": True}))
"""Has vLLM log its calls, so that they can be counted."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Documents in two shards, one question each, of words that the policy was not trained on."""
    folder = tmp_path_factory.mktemp("corpus")
    tasks = make_tasks(LENGTHS, seed=7)
    rows = [{"document_id": f"d{number}", "text": task.document} for number, task in enumerate(tasks)]
    questions = [
        {"question_id": "q", "document_id": f"d{number}", "question": task.question, "references": [*task.references]}
        for number, task in enumerate(tasks)
    ]
    (folder / "documents").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[::2]), folder / "documents" / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows[1::2]), folder / "documents" / "b.parquet")
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    return Corpus(
        documents=folder / "documents",
        questions=folder / "questions.parquet",
        settings=("--config", str(CONFIG), "--policy.break-at", "length"),
    )


@pytest.fixture(scope="module")
def finished_run(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one run over the corpus, whose engine was killed in the middle."""
    output = tmp_path_factory.mktemp("finished") / "run"
    arguments = [*corpus.arguments(), *COUNTED, "--executor", "ray", "--output", str(output)]
    with KilledJob(arguments, output=output) as job:
        job.start()
        assert job.wait_until(lambda: job.num_calls() > CALLS_BEFORE_KILL), job.last_words()
        job.kill(Role.ENGINE, job.require(Role.ENGINE))
        assert job.finish() == 0, job.last_words()
        job.require_gone()
    return output


def answers_of(output: Path) -> dict[str, tuple[str, str, str]]:
    rows = table_rows(output, "answers")
    return {row["document_id"]: (row["answer"], row["response"], row["memory"]) for row in rows}


def turns_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "log" / "turns").to_pylist()
    return rows


def test_main_job_counts_close(finished_run: Path) -> None:
    counts = find_run(Location(uri=str(finished_run))).manifest["counts"]
    assert counts["asked"] == counts["ok"] == counts["answers_rows"] == len(LENGTHS)
    assert counts["failed"] == 0
    assert counts["memories_rows"] == len(turns_of(finished_run))


def test_main_job_answers_needle_questions_right(corpus: Corpus, finished_run: Path) -> None:
    questions = pq.read_table(corpus.questions).to_pylist()
    answers = answers_of(finished_run)
    right = [answers[row["document_id"]][0] == row["references"][0] for row in questions]
    assert sum(right) >= 0.9 * len(right) - 0.5, list(zip(questions, answers.items(), strict=True))


@pytest.mark.usefixtures("one_thread")
def test_main_job_equals_reference_loop_turn_for_turn(corpus: Corpus, finished_run: Path) -> None:
    """The published loop in its plainest form, with greedy generation by transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY_MODEL, dtype=torch.float32).eval()
    tokenizer = Tokenizer(str(TINY_MODEL))
    prompts = tokenizer.prompt_tokens(DEFAULT_PROMPTS)
    questions = pq.read_table(corpus.questions).to_pylist()
    texts = {row["document_id"]: row["text"] for row in pq.read_table(corpus.documents).to_pylist()}
    logged = {(row["document_hash"], row["path"]): row["token_ids"] for row in turns_of(finished_run)}
    hashes = {row["document_id"]: row["document_hash"] for row in table_rows(finished_run, "answers")}

    def generate(prompt: list[int], max_tokens: int) -> list[int]:
        with torch.inference_mode():
            ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=max_tokens)
        completion: list[int] = ids[0, len(prompt) :].tolist()
        return completion

    compared = 0
    for row in questions:
        document = tokenizer.encode(texts[row["document_id"]])
        question, memory = tokenizer.encode(row["question"]), list(prompts.first_memory.token_ids)
        for index, start in enumerate(range(0, len(document) - OVERLAP_TOKENS, CHUNK_TOKENS - OVERLAP_TOKENS)):
            chunk = document[start : start + CHUNK_TOKENS]
            prompt = prompts.update.fill({Slot.QUESTION: question, Slot.MEMORY: memory, Slot.CHUNK: chunk})
            written = generate(prompt, MEMORY_TOKENS)
            assert logged[hashes[row["document_id"]], f"update/{index}"] == written
            memory = [token for token in written if token not in tokenizer.control_token_ids] or memory
            compared += 1
        prompt = prompts.answer.fill({Slot.QUESTION: question, Slot.MEMORY: memory})
        assert logged[hashes[row["document_id"]], "answer"] == generate(prompt, ANSWER_TOKENS)
        compared += 1
    assert compared == len(logged)


def test_memories_spans_cover_every_document(corpus: Corpus, finished_run: Path) -> None:
    texts = {row["document_id"]: row["text"] for row in pq.read_table(corpus.documents).to_pylist()}
    memories = pq.read_table(finished_run / "memories").to_pylist()
    for document_id, text in texts.items():
        spans = [row for row in memories if row["document_id"] == document_id and row["kind"] == "update"]
        seen, end = "", 0
        for row in sorted(spans, key=lambda row: row["turn"]):
            assert row["char_start"] <= end < row["char_end"]
            seen, end = seen + text[end : row["char_end"]], row["char_end"]
        assert seen == text


def test_main_job_run_again_makes_no_model_call(corpus: Corpus, finished_run: Path) -> None:
    before, answers = sorted((finished_run / "log" / "turns").iterdir()), answers_of(finished_run)
    arguments = [*corpus.arguments(), *COUNTED, "--executor", "local", "--output", str(finished_run)]
    assert cli.main(["answer", *arguments]) == 0
    assert sorted((finished_run / "log" / "turns").iterdir()) == before
    assert answers_of(finished_run) == answers
