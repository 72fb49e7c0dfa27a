"""Time to the same accuracy: ways of reading that only this project has, against peers that run the published loop.

Three corpora: documents with one question each, documents with many, and one long document by itself. Peers and job run
as they ship. The job reads each corpus with several policies; `overwrite` is the published loop. Each comparison says
how many times as fast the job was, and whether it was right as often over the same questions: those that only one of
the two answered right, and the chance of so uneven a split.
"""

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Mode, Peer, job_settings, make_server, run_job, run_peer
from benchmarks.peers.corpus import MadeCorpus, chunk_texts, save_corpus
from benchmarks.peers.server import VllmServer
from benchmarks.peers.text_loop import PeerResult, TextDocument
from benchmarks.spread import spread
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.scores import Metric, score
from memagent_batch.evaluation.needles import Haystack, make_task
from memagent_batch.evaluation.statistics import paired
from memagent_batch.wiring import make_tokenizer

PEERS = (Peer.DATATROVE, Peer.CLIENT)
"""Peers that keep an engine busy; rounds of `ray.data.llm` take minutes."""

WAYS = {
    "overwrite": ("--policy.kind", "overwrite", "--prompt-set", "default"),
    "gated": ("--policy.kind", "gated"),
    "parallel": ("--policy.kind", "parallel", "--policy.rounds", "1"),
}
"""Policies of the job, with their knobs."""

NEAR_FACTS = 3
"""Sentences of each question's part of the document that are made to be mixed up with the one that is asked for."""


class Load(StrEnum):
    """What is read."""

    ONE = "one"
    """Documents with one question each."""
    MANY = "many"
    """Documents with many questions each."""
    LONG = "long"
    """One document, alone, with one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCorpus:
    """A corpus, and the right answer to each of its questions."""

    corpus: MadeCorpus
    """The corpus."""
    references: dict[str, str]
    """Right answers by question id."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--loads", nargs="+", type=Load, default=list(Load), choices=list(Load), help="default: all")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="policies of the job; default: all")
    parser.add_argument("--peers", nargs="+", type=Peer, default=list(PEERS), choices=list(Peer))
    parser.add_argument("--documents", type=int, default=100, help="documents with one question (default: 100)")
    parser.add_argument("--listed", type=int, default=6, help="documents with many questions (default: 6)")
    parser.add_argument("--questions", type=int, default=16, help="their questions (default: 16)")
    parser.add_argument("--chunks", type=int, default=8, help="chunks of all these documents (default: 8)")
    parser.add_argument("--long-chunks", type=int, default=1_042, help="of the long one (default: 1,042; 1 M tokens)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server does not outlive the command
    with tempfile.TemporaryDirectory() as folder, make_server(Mode.SHIPPED, folder=Path(folder, "server")) as server:
        for load in arguments.loads:
            results: dict[str, list[PeerResult]] = {}
            references: dict[str, str] = {}
            for run in range(arguments.runs):
                asked = _make(Path(folder, f"{load}-{run}"), load, arguments, seed=run)
                references |= {f"{run} {name}": answer for name, answer in asked.references.items()}
                for contestant, result in _run_all(arguments, asked.corpus, server):
                    results.setdefault(contestant, []).append(result)
                    yield _run_line(load, run, contestant, result, asked)
            yield from comparisons(load, results, references, ways=arguments.ways, peers=arguments.peers)


def _make(folder: Path, load: Load, arguments: argparse.Namespace, *, seed: int) -> AskedCorpus:
    """Writes the corpus of one run; every run has documents of its own."""
    folder.mkdir()
    num_documents, num_questions, num_chunks = {
        Load.ONE: (arguments.documents, 1, arguments.chunks),
        Load.MANY: (arguments.listed, arguments.questions, arguments.chunks),
        Load.LONG: (1, 1, arguments.long_chunks),
    }[load]
    rng, agent = random.Random(f"{load} {seed}"), job_settings(Mode.SHIPPED).agent
    tokenizer = make_tokenizer(agent)
    stride = agent.policy.chunk_tokens - agent.policy.overlap_tokens
    num_tokens = num_chunks * stride - stride // 2  # some way into the last chunk
    rows, questions, documents, references = [], [], [], {}
    for number in range(num_documents):
        tasks = [
            make_task(
                rng,
                length=num_tokens // num_questions,
                length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
                haystack=Haystack.RUNNING,
                num_distractors=NEAR_FACTS if num_questions == 1 else 0,
                near=num_questions == 1,
            )
            for _ in range(num_questions)
        ]
        name, text = f"d{number:04d}", "\n".join(task.document for task in tasks)
        rows.append({"document_id": name, "text": text})
        chunks = chunk_texts(text, agent)
        for place, task in enumerate(tasks):
            question_id = f"{name}-{place:02d}"
            references[question_id] = task.answer
            questions.append({"document_id": name, "question_id": question_id, "question": task.question})
            documents.append(TextDocument(question_id=question_id, question=task.question, chunks=chunks))
    return AskedCorpus(corpus=save_corpus(folder, rows, questions, documents, agent=agent), references=references)


def _run_all(arguments: argparse.Namespace, corpus: MadeCorpus, server: VllmServer) -> Iterator[tuple[str, PeerResult]]:
    """The job's ways and the peers, one after the other."""
    for way in arguments.ways:
        yield way, run_job(Mode.SHIPPED, corpus, output=corpus.folder / way, knobs=WAYS[way]).result
    for peer in arguments.peers:
        output = corpus.folder / f"{peer.name.lower()}.json"
        yield peer, run_peer(peer, Mode.SHIPPED, corpus, server=server, output=output)


def _run_line(load: Load, run: int, contestant: str, result: PeerResult, asked: AskedCorpus) -> dict[str, Any]:
    return {
        "what": "run",
        "load": load,
        "run": run,
        "contestant": contestant,
        "seconds": round(result.seconds, 2),
        "turns": result.num_turns,
        "questions": len(asked.references),
        "right": sum(_right(result, asked.references).values()),
    }


def comparisons(
    load: Load,
    results: Mapping[str, Sequence[PeerResult]],
    references: Mapping[str, str],
    *,
    ways: Sequence[str],
    peers: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Each way of the job against each peer, over all runs.

    Args:
        load: What was read.
        results: What came of each run, by contestant.
        references: Right answers, by the number of the run and question id.
        ways: Contestants of the job.
        peers: The others.
    """
    right = {contestant: _right(_joined(runs), references) for contestant, runs in results.items()}
    for way in ways:
        for peer in peers:
            compared = paired(right[way], right[peer])
            times = [theirs.seconds / ours.seconds for ours, theirs in zip(results[way], results[peer], strict=True)]
            yield {
                "what": "comparison",
                "load": load,
                "way": way,
                "peer": peer,
                **spread("times_as_fast", times, digits=2),
                "questions": len(references),
                "right": sum(right[way].values()),
                "right_of_peer": sum(right[peer].values()),
                "right_where_peer_is_not": compared.num_better,
                "wrong_where_peer_is_right": compared.num_worse,
                "p": round(compared.p, 4),
            }


def _joined(runs: Sequence[PeerResult]) -> PeerResult:
    """The responses of all runs, each under its run's number."""
    responses = {f"{run} {name}": text for run, result in enumerate(runs) for name, text in result.responses.items()}
    return PeerResult(seconds=0, num_turns=0, responses=responses)


def _right(result: PeerResult, references: Mapping[str, str]) -> dict[str, bool]:
    """Whether each question was answered right."""
    found = {name: extract_answer(text, extraction=Extraction.BOXED) for name, text in result.responses.items()}
    return {name: score(Metric.RULER_ALL, found[name], [answer]) == 1 for name, answer in references.items()}
