"""How much of one reading is done: stands between its turns and the actor's counts."""

from collections.abc import Callable

from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.ray_data.progress.reporter import Reporter


class ReadingShare:
    """Counts a reading in the bytes that it has in the plan: a part with each turn, the rest at its end.

    Its turns count as parts of the most that it may take, and one more. So a reading is whole at its end alone: not
    after a round over the chunks that others follow, and not before what is asked after its answer.
    """

    def __init__(self, reporter: Reporter, *, num_bytes: int, most_turns: Callable[[], int]) -> None:
        """Nothing is read.

        Args:
            reporter: Counts of the actor.
            num_bytes: What the plan counts for the reading.
            most_turns: Most turns of the reading, those after its answer left out; asked at the first one.
        """
        self._reporter = reporter
        self._num_bytes = num_bytes
        self._most_turns = most_turns
        self._num_turns = self._reported = 0

    def count_turn(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; one that the log held counts as any other."""
        self._reporter.count_turn(prompt, completion)
        if prompt.fingerprint is None:
            most = self._most_turns()
            self._num_turns = min(self._num_turns + 1, most)
            self._report(self._num_bytes * self._num_turns // (most + 1))

    def end(self) -> None:
        """The reading ended, whatever came of it; one that was not read has more to do."""
        self._report(self._num_bytes)

    def _report(self, num_bytes: int) -> None:
        self._reporter.count_read(num_bytes - self._reported)
        self._reported = num_bytes
