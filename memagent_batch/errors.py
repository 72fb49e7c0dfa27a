"""The vocabulary of what can go wrong, named after the boundary that was crossed.

Every error takes one message, pickles, and says in the message what is wrong, where, and what to do. URLs in a message
are shown without their secrets, whoever wrote it.
"""

from importlib.util import find_spec
from typing import ClassVar

from memagent_batch.masking import mask_urls

EXIT_INTERRUPTED = 130
"""Exit code after SIGINT, as shells count it; the same command goes on."""


class MemagentError(Exception):
    """Base of every error that this project raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What the command ends with, and a program of yours may: see docs/reference/exit-codes-and-events.md."""

    def __init__(self, message: str) -> None:
        """Masks the secrets of URLs in `message`, which may quote a file system's or an endpoint's own words."""
        super().__init__(mask_urls(message))


class UsageError(MemagentError):
    """The user's mistake, found before an engine starts: settings, inputs, output location."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown, missing, or has a value that can't work."""


class InputError(UsageError):
    """A file, column or row of the input can't be read."""


class InputUnreachableError(InputError):
    """A file of the input is gone, forbidden, or on a store that does not answer; what it holds may be right."""


class PromptSetError(UsageError):
    """A prompt set lacks a slot, a form or a constant, or can't be parsed."""


class ValueTypeError(UsageError):
    """What a question says of the type of its answer can't be: an unknown type, empty labels, a schema beyond reach."""


class OutputError(UsageError):
    """The output location holds something that this run must not touch."""


class ReadingError(MemagentError):
    """One reading can't be finished. It becomes a `failed` row and costs no other reading."""


class DocumentError(ReadingError):
    """The text of one document can't be read: null, wrong encoding."""


class BadFileError(ReadingError):
    """A file of the input can't be read, or a record in it, and `input.on_bad_file` is `record`."""


class DocumentMissingError(ReadingError):
    """A question is bound to a document that is not there."""


class SourceUnreadError(ReadingError):
    """No part of the document's source could be read: a scan without a text layer, a damaged or empty file."""


class QuestionTooLongError(ReadingError):
    """A question is longer than `question_tokens`."""


class PromptTooLongError(ReadingError):
    """A prompt and its completion budget do not fit the engine's window."""


class TurnUnansweredError(ReadingError):
    """A model wrote nothing, a thought alone, or a refusal: what its prompt showed was not read."""


class NotLoggedError(ReadingError):
    """A replay asks for a turn that the log does not hold: the reading failed there."""


class EngineRequestError(ReadingError):
    """The engine refused or failed one request, and goes on serving others."""


class FollowUpError(ReadingError):
    """What a follow-up question wrote can't be used, as where it was cut. The answer stays as it is."""


class ConversionError(MemagentError):
    """A file can't be converted to text: encrypted, damaged, too much. It becomes a row that says why."""


class LogRowError(ReadingError):
    """A turn or an outcome of one reading holds what the turn log can't: a number out of range, what is not text."""


class NotReadError(MemagentError):
    """A reading can't be finished now, for a cause that passes. It gets no outcome, and the next run reads it."""


class EngineUnavailableError(NotReadError):
    """The endpoint gave no usable answer for longer than an outage may last: away, overloaded, out of quota."""

    def __init__(self, message: str, *, is_turned_away: bool = False) -> None:
        super().__init__(message)
        self.is_turned_away = is_turned_away
        """Whether it said that it takes no more for now (429)."""


class BoundReachedError(NotReadError):
    """The run may start no further turn: it has met its own bound; the same command goes on."""

    exit_code = 6


class ReplicaLostError(NotReadError):
    """The engine of the replica that had the reading can't start again."""


class EngineRefusedError(UsageError):
    """The endpoint refuses the key or does not know the model: no reading can succeed until the user fixes it."""


class TooManyRemovedError(MemagentError):
    """The run is closed and its tables are written, but more documents are gone than `max_removed_share` allows."""

    exit_code = 4


class TooManyFailedError(MemagentError):
    """The run is closed and its tables are written, but more readings failed than `max_failed_share` allows."""

    exit_code = 4


class UnreadSourcesError(MemagentError):
    """The run is closed and its tables are written; of some documents not all of the source was read."""

    exit_code = 7


class NotVerifiedError(MemagentError):
    """The tables of an output are not as its run wrote them, or do not fit one another."""


class EngineDeadError(MemagentError):
    """The engine can serve nothing more. Its actor stops at once; Ray replaces it."""


class EngineStartError(UsageError):
    """The engine can't start with this model or these arguments."""


class StorageError(MemagentError):
    """The output location can't be read or written; nothing may count as done that is not kept."""


class StorageOutageError(StorageError):
    """The output location failed in a way that may pass: no answer, overloaded, full."""


class CountsError(MemagentError):
    """The tables do not hold one row for each reading that was asked for."""


class SupersededError(MemagentError):
    """A newer run has taken over the output; this one leaves it."""

    exit_code = 3


class ErasedError(SupersededError):
    """A `memagent forget` has taken over the output; this run must leave nothing in it."""


class TerminatedError(MemagentError):
    """The run had to leave, as when its node is removed; the same command goes on."""

    exit_code = 143


class RunFailedError(MemagentError):
    """The run stopped before its readings were done; the same command goes on from the log."""


def require_extra(extra: str, *, package: str) -> None:
    """Refuses to go on without a package.

    Raises:
        SettingsError: the package is not installed; names the extra that installs it.
    """
    if find_spec(package) is None:
        raise SettingsError(f"the package {package} is not installed: pip install 'memagent-batch[{extra}]'")
