"""The job against others who run the same memory loop: the same documents, questions, prompts and greedy tokens.

Seconds are from the first request to the last result. The start of the engine is told apart and left out; the peers
share one server of vLLM, started once and forgetting its prefix cache before each run. Runs alternate.
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Mode, Peer, job_settings, make_server, run_job, run_peer
from benchmarks.peers.corpus import Corpus, MadeCorpus, make_corpus
from benchmarks.peers.report import Round, summarise
from benchmarks.peers.server import VllmServer
from benchmarks.peers.text_loop import PeerResult


def main() -> None:
    known = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server does not outlive the command
    runs = {peer: known.rounds_runs if peer == Peer.ROUNDS else known.runs for peer in known.peers}
    sizes = {Corpus.HEAVY_TAIL: known.heavy_tail_documents, Corpus.EVEN: known.even_documents}
    with tempfile.TemporaryDirectory() as folder:
        corpora = {
            corpus: make_corpus(
                Path(folder, corpus), corpus, num_documents=sizes[corpus], settings=job_settings(Mode.SAME)
            )
            for corpus in known.corpora
        }
        for mode in known.modes:
            with make_server(mode, folder=Path(folder, f"server-{mode}")) as server:
                _say({"what": "server", "mode": mode, "start_seconds": round(server.start_seconds, 1)})
                for corpus, made in corpora.items():
                    rounds = _runs(mode, made, runs, server=server)
                    _conclude(rounds, mode=mode, corpus=corpus, is_terse=known.json)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    options.add_argument("--peers", nargs="+", type=Peer, default=list(Peer), choices=list(Peer))
    options.add_argument("--modes", nargs="+", type=Mode, default=list(Mode), choices=list(Mode))
    options.add_argument("--corpora", nargs="+", type=Corpus, default=[Corpus.HEAVY_TAIL], choices=list(Corpus))
    options.add_argument("--heavy-tail-documents", type=int, default=400, help="(default: 400)")
    options.add_argument("--even-documents", type=int, default=150, help="(default: 150)")
    options.add_argument("--runs", type=int, default=3, help="alternating runs of each (default: 3)")
    options.add_argument("--rounds-runs", type=int, default=1, help="runs of `rounds`, each of minutes (default: 1)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    return options.parse_args()


def _runs(mode: Mode, made: MadeCorpus, runs: Mapping[Peer, int], *, server: VllmServer) -> dict[Peer, list[Round]]:
    """All runs over a corpus, the job's and those of each peer in turn; `runs` says how many each peer has."""
    rounds: dict[Peer, list[Round]] = {peer: [] for peer in runs}
    for run in range(max(runs.values())):
        base = made.folder / f"{mode}-{run}"
        base.mkdir()
        job = run_job(mode, made, output=base / "job")
        _tell(job.result, made, mode=mode, contestant="job", start_seconds=round(job.start_seconds, 1))
        for peer in (peer for peer, times in runs.items() if run < times):
            result = run_peer(peer, mode, made, server=server, output=base / f"{peer.name.lower()}.json")
            _tell(result, made, mode=mode, contestant=peer)
            rounds[peer].append(Round(job=job.result, peer=result))
    return rounds


def _conclude(rounds: Mapping[Peer, list[Round]], *, mode: Mode, corpus: Corpus, is_terse: bool) -> None:
    for peer, pairs in rounds.items():
        figures = summarise(pairs)
        _say({"what": "comparison", "mode": mode, "corpus": corpus, "peer": peer, **figures})
        if not is_terse:
            print(f"{mode}, {corpus}: the job is {figures['times_as_fast']} times as fast as {peer}", flush=True)


def _tell(result: PeerResult, made: MadeCorpus, *, mode: Mode, contestant: str, **more: Any) -> None:
    if result.num_turns != made.num_turns:
        raise RuntimeError(f"{contestant} made {result.num_turns} turns, the corpus takes {made.num_turns}")
    _say(
        {
            "what": "run",
            "mode": mode,
            "corpus": made.folder.name,
            "contestant": contestant,
            "turns": result.num_turns,
            "seconds": round(result.seconds, 2),
            "turns_per_second": round(result.num_turns / result.seconds, 1),
            **more,
        }
    )


def _say(figures: dict[str, Any]) -> None:
    print(json.dumps({"benchmark": "peers", **figures}), flush=True)


if __name__ == "__main__":
    main()
