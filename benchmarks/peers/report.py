"""What the runs say together: times side by side, and whether the answers are the same."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.text_loop import PeerResult


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
    ratios = [pair.times_as_fast for pair in rounds]
    return {
        "runs": len(rounds),
        "job_seconds": spread([pair.job.seconds for pair in rounds]),
        "peer_seconds": spread([pair.peer.seconds for pair in rounds]),
        "times_as_fast": round(statistics.median(ratios), 2),
        "times_as_fast_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "identical_answers": round(statistics.mean(pair.identical_answers for pair in rounds), 4),
    }


def spread(seconds: Sequence[float]) -> list[float]:
    """Median, least and most, seconds."""
    return [round(value, 2) for value in (statistics.median(seconds), min(seconds), max(seconds))]
