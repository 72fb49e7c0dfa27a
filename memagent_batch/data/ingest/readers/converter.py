"""What a converter is: one file in, its parts and attachments out. A plug-in; it runs in its own process."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol

from memagent_batch.errors import ConversionError, SettingsError

_ENDING = re.compile(r"\.[a-z0-9]{1,10}")

WHOLE_SOURCE = "text"
"""Locator of the one part of a file without places, such as a text file."""
SMALL_BYTES = 512
"""Pictures of fewer bytes show lines and dots, no words."""


class Severity(StrEnum):
    """What a loss means for an answer."""

    UNREAD = "unread"
    """Something was not read: nothing can be "not stated"."""
    UNCERTAIN = "uncertain"
    """It was read, and may be wrong: nothing can be "not stated"."""
    FORMAT = "format"
    """Only its form is lost, or it is good to know."""


class PartStatus(StrEnum):
    """What became of a part of a document: the one list of statuses, and so of kinds of losses."""

    OK = "ok"
    """It has text. It is a loss only if there is something to know of it, and that is called a note."""
    NEEDS_OCR = "needs_ocr"
    """It shows something, but its text layer has nothing, or nothing that can be read. `text` has what there is."""
    FAILED = "failed"
    """It is damaged, encrypted, or over a limit."""
    SKIPPED = "skipped"
    """Nothing converts it: its kind, its size, or how deep it is nested."""
    MISSED = "missed"
    """Its converter gave less than it contains; `reason` says what."""
    NOT_READ = "not_read"
    """Its file can't be fetched now; the next run tries again."""
    EMPTY = "empty"
    """It holds nothing. It is a loss only if the whole document holds nothing."""
    NEEDS_REVIEW = "needs_review"
    """It was read, and some of its text may be wrong; `reason` says what. Nothing is "not stated" in it."""

    @property
    def severity(self) -> Severity:
        """The severity of a loss with this status."""
        match self:
            case PartStatus.OK:
                return Severity.FORMAT
            case PartStatus.NEEDS_REVIEW:
                return Severity.UNCERTAIN
        return Severity.UNREAD

    @property
    def has_text(self) -> bool:
        """Whether a part with this status has a text, if only an empty one."""
        return self in (PartStatus.OK, PartStatus.NEEDS_OCR, PartStatus.EMPTY, PartStatus.NEEDS_REVIEW)

    @property
    def loss_kind(self) -> str:
        """The kind of a loss with this status."""
        return NOTE if self is PartStatus.OK else self.value


NOTE = "note"
"""Kind of a loss that only says what to know of a text that was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that OCR read. Its box is in shares of the upright page, from the upper left corner."""

    text: str
    confidence: float
    """From 0 to 1."""
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a document, in the order of reading."""

    locator: str = ""
    """Where it stands in its file: `page 3`, `message 17`, `section 2: Payment`; empty for the whole file."""
    text: str = ""
    status: PartStatus = PartStatus.OK
    """What became of it. An `ok` part without a visible character is recorded as `empty`."""
    reason: str | None = None
    """Why it is not `ok`, or what to know of its text."""
    left_out: str = ""
    """Words of the file that `text` shows otherwise, such as the value of a cell behind what its format displays, or
    that are left out on purpose. They count as read; `reason` says so where people would miss them."""
    lines: Sequence[Line] = ()
    """The lines of `text`, in its order, if OCR read it."""
    picture: bytes = b""
    """Of one that needs OCR, the image of what it shows: with `--ingest.ocr`, the converter of images reads it."""

    @property
    def is_account(self) -> bool:
        """Whether it has nothing but `left_out` or a picture: it tells the count what was seen, and is not recorded."""
        accounted = self.left_out or self.picture
        return bool(accounted) and self == Part(left_out=self.left_out, picture=self.picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file inside the file. It becomes a separate document, converted in another process."""

    number: str
    """Its position in the file, unique there: `1`, or `17-1` for the first one of message 17."""
    name: str
    locator: str
    data: bytes = b""
    failure: str | None = None
    content_hash: str | None = None
    """SHA-256 of its bytes, hex; by default that of `data`. Empty if the bytes in the file are not known."""


class Converter(Protocol):
    """Turns a file of one kind into text. It is made without arguments.

    A class may have `modules`: names of modules that take long to import, which the processes of all files then share.
    And `settings`: names of settings of `memagent ingest`, such as `ocr`, that it is made with.
    """

    def version(self) -> str:
        """Its version and that of its library; where it changes, files are converted again.

        Raises:
            SettingsError: its library is not installed.
        """
        ...

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """The parts in order, and the attachments.

        Raises:
            ConversionError: the file can't be converted. Any other exception counts as well, with its type.
        """
        ...


class BuiltIn:
    """A built-in converter says which library it uses."""

    revision: ClassVar[int]
    """Raised with every change of what it reads."""
    package: ClassVar[str | None] = None
    extra: ClassVar[str] = "convert"
    modules: ClassVar[tuple[str, ...]] = ()

    def version(self) -> str:
        """Its revision, and the version of its package.

        Raises:
            SettingsError: the package is not installed.
        """
        if self.package is None:
            return str(self.revision)
        try:
            return f"{self.revision} ({self.package} {version(self.package)})"
        except PackageNotFoundError as error:
            raise SettingsError(
                f"ingest.converter: {self.package} is not installed; `pip install 'memagent-batch[{self.extra}]'` "
                "installs it, on every node"
            ) from error


def make_converter(maker: Any, settings: Mapping[str, Any]) -> Converter:
    """A converter, made with those of the settings that its class names; the others have its defaults."""
    made: Converter = maker(**{name: settings[name] for name in getattr(maker, "settings", ()) if name in settings})
    return made


def read_attachment(
    *, number: str, locator: str, name: Callable[[], str], data: Callable[[], bytes], failure: str
) -> Attachment:
    """A file inside the file. One that can't be had costs itself, whatever its library makes of it.

    The locator stands before the file's name. The failure says what can't be read, before the reason; a
    `ConversionError` says all itself.
    """
    found = f"unnamed-{number}"
    try:
        found = name() or found
        return Attachment(number=number, name=found, locator=f"{locator} {found}", data=data())
    except ConversionError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - libraries raise what they like at damaged files
        reason = f"{failure} ({failure_reason(error)})"
    return Attachment(number=number, name=found, locator=f"{locator} {found}", failure=reason)


def picture_parts(locator: str, data: bytes) -> Iterator[Part]:
    """The part of a picture inside a document; none for one that is too small to show words."""
    if len(data) >= SMALL_BYTES:
        reason = "a picture: what it shows is not read"
        yield Part(locator=locator, status=PartStatus.NEEDS_OCR, reason=reason, picture=data)


def failure_reason(error: BaseException) -> str:
    """Why a file, or a piece of it, can't be converted, for its row."""
    if isinstance(error, ConversionError):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested deeper than its converter can follow"
    if isinstance(error, MemoryError):
        return "it needs more memory than --ingest.memory-mib allows"
    return f"{type(error).__name__}: {error}"


def ending_of(name: str) -> str:
    """The ending of a file's name, in small letters; empty where it has none that a file system takes anywhere."""
    ending = PurePosixPath(name.lower()).suffix
    return ending if _ENDING.fullmatch(ending) else ""
