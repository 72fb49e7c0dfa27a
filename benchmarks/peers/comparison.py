"""The job against others who run the same memory loop: the same documents, questions, prompts and greedy tokens.

Seconds are from the first request to the last result. The start of the engine is measured apart and left out; the peers
share one server of vLLM, started once, which forgets its prefix cache before each run. Runs alternate.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Mode, Peer, job_settings, make_server, run_job, run_peer
from benchmarks.peers.corpus import Corpus, MadeCorpus, make_corpus
from benchmarks.peers.report import Round, summarise
from benchmarks.peers.server import VllmServer
from benchmarks.peers.text_loop import PeerResult


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", nargs="+", type=Peer, default=list(Peer), choices=list(Peer))
    parser.add_argument("--modes", nargs="+", type=Mode, default=list(Mode), choices=list(Mode))
    parser.add_argument("--corpora", nargs="+", type=Corpus, default=[Corpus.HEAVY_TAIL], choices=list(Corpus))
    parser.add_argument("--heavy-tail-documents", type=int, default=400, help="(default: 400)")
    parser.add_argument("--even-documents", type=int, default=150, help="(default: 150)")
    parser.add_argument("--rounds-runs", type=int, default=1, help="runs of `rounds`, each of minutes (default: 1)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server does not outlive the command
    runs = {peer: arguments.rounds_runs if peer == Peer.ROUNDS else arguments.runs for peer in arguments.peers}
    sizes = {Corpus.HEAVY_TAIL: arguments.heavy_tail_documents, Corpus.EVEN: arguments.even_documents}
    with tempfile.TemporaryDirectory() as folder:
        corpora = {
            corpus: make_corpus(
                Path(folder, corpus), corpus, num_documents=sizes[corpus], agent=job_settings(Mode.SAME).agent
            )
            for corpus in arguments.corpora
        }
        for mode in arguments.modes:
            with make_server(mode, folder=Path(folder, f"server-{mode}")) as server:
                yield {"what": "server", "mode": mode, "start_seconds": round(server.start_seconds, 1)}
                for corpus, made in corpora.items():
                    yield from _compare(mode, corpus, made, runs, server=server)


def _compare(
    mode: Mode, corpus: Corpus, made: MadeCorpus, runs: Mapping[Peer, int], *, server: VllmServer
) -> Iterator[dict[str, Any]]:
    """All runs over a corpus, the job's and those of each peer in turn, then their comparison."""
    rounds: dict[Peer, list[Round]] = {peer: [] for peer in runs}
    about = {"mode": mode, "corpus": corpus}
    for run in range(max(runs.values())):
        base = made.folder / f"{mode}-{run}"
        base.mkdir()
        job = run_job(mode, made, output=base / "job")
        yield {**about, **_figures(job.result, made, contestant="job"), "start_seconds": round(job.start_seconds, 1)}
        for peer in (peer for peer, times in runs.items() if run < times):
            result = run_peer(peer, mode, made, server=server, output=base / f"{peer.name.lower()}.json")
            yield {**about, **_figures(result, made, contestant=peer)}
            rounds[peer].append(Round(job=job.result, peer=result))
    for peer, pairs in rounds.items():
        yield {"what": "comparison", **about, "peer": peer, **summarise(pairs)}


def _figures(result: PeerResult, made: MadeCorpus, *, contestant: str) -> dict[str, Any]:
    if result.num_turns != made.num_turns:
        raise RuntimeError(f"{contestant} made {result.num_turns} turns, the corpus takes {made.num_turns}")
    return {
        "what": "run",
        "contestant": contestant,
        "turns": result.num_turns,
        "seconds": round(result.seconds, 2),
        "turns_per_second": round(result.num_turns / result.seconds, 1),
    }
