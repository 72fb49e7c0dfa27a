"""Summary of the runs: times side by side, and the share of identical answers."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.text_loop import PeerResult
from benchmarks.spread import spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run of the job and one of a peer, made one after the other."""

    job: PeerResult
    """The job's."""
    peer: PeerResult
    """The peer's."""

    @property
    def times_as_fast(self) -> float:
        """The peer's seconds over the job's; above 1 the job is the faster one."""
        return self.peer.seconds / self.job.seconds

    @property
    def identical_answers(self) -> float:
        """Share of the documents whose responses are the same text."""
        same = [self.peer.responses[name] == response for name, response in self.job.responses.items()]
        return sum(same) / len(same)


def summarise(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians and ranges over the rounds."""
    return {
        "runs": len(rounds),
        **spread("job_seconds", [pair.job.seconds for pair in rounds], digits=2),
        **spread("peer_seconds", [pair.peer.seconds for pair in rounds], digits=2),
        **spread("times_as_fast", [pair.times_as_fast for pair in rounds], digits=2),
        "identical_answers": round(statistics.mean(pair.identical_answers for pair in rounds), 4),
    }
