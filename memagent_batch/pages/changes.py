"""Which answers of a run are other ones than in the run before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.pages.readings import ReadingKey, key_of
from memagent_batch.pages.values import values_of_both
from memagent_batch.runs.comparison import AnswerChange, compare_runs
from memagent_batch.runs.history import find_run
from memagent_batch.runs.manifest import Manifest

KEPT_CHARACTERS = 300
"""Of an earlier answer, characters that are held; `memagent diff` shows all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How an answer differs from that of the run before."""

    kind: AnswerChange
    """New or changed."""
    why: tuple[str, ...]
    """What is new or other; see `Cause`."""
    before: str | None
    """The earlier answer, its beginning; None where there was none."""
    value_before: str | None = None
    """The earlier value, its beginning; None where there was none, or where it is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """What a run changed."""

    since: str | None
    """Id of the run before; None for a first run."""
    readings: Mapping[ReadingKey, Change] = field(default_factory=dict)
    """Readings of the later run that are new, or have another answer, value or status."""
    num_removed: int = 0
    """Readings that only the earlier run asked for."""
    problem: str | None = None
    """Why the runs can't be compared; None where they were."""

    @property
    def is_known(self) -> bool:
        """Whether it is known of each answer if it changed."""
        return self.since is not None and self.problem is None


def changes_of(output: Location, manifest: Manifest) -> RunChanges:
    """Compares a run with the finished run before it, by their records and logs."""
    since = manifest["changes"].get("since")
    if since is None:
        return RunChanges(since=None)
    readings: dict[ReadingKey, Change] = {}
    num_removed = 0
    try:
        for table in compare_runs(find_run(output, since), find_run(output, manifest["run_id"])):
            for row in table.to_pylist():
                if row["change"] == AnswerChange.REMOVED:
                    num_removed += 1
                    continue
                before = row["answer_before"] or row["error_message_before"] or row["status_before"]
                value, _ = values_of_both(row) or (None, None)
                readings[key_of(row)] = Change(
                    kind=AnswerChange(row["change"]),
                    why=tuple(row["why"]),
                    before=before and before[:KEPT_CHARACTERS],
                    value_before=value and value[:KEPT_CHARACTERS],
                )
    except OutputError as error:
        return RunChanges(since=since, problem=str(error))
    return RunChanges(since=since, readings=readings, num_removed=num_removed)
