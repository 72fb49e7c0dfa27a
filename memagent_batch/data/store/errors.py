"""The one boundary to file systems, file formats and their clients: their exceptions become this project's own.

Which class is raised depends on what was done with the file: an input was read (`input_errors`), an output was touched
for the first time (`output_errors`), the project's own storage was used (`storage_errors`), or one of its own tables
was read back (`table_errors`). What an exception is about is decided once, in `is_foreign` and `is_of_content`.
"""

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from memagent_batch.errors import (
    InputError,
    InputUnreachableError,
    MemagentError,
    OutputError,
    StorageError,
    StorageOutageError,
    UsageError,
)
from memagent_batch.masking import mask_url

FILE_ERRORS = (OSError, pa.ArrowException)

LASTING_ERRORS = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""What another try can't fix. A full disk is not among them: room may be made."""

CLIENT_PACKAGES = frozenset(
    {"adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "fsspec", "gcsfs", "google", "httpx", "httpx2"}
    | {"huggingface_hub", "pyiceberg", "requests", "sqlalchemy"}
)
"""Packages of file system and catalog clients whose errors do not descend from OSError."""

DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
"""Colours and arrows in messages of deltalake."""


@contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Turns what file systems, formats and clients raise while the input `path` is read into an InputError.

    Raises:
        InputError: the file is truncated or malformed.
        InputUnreachableError: it is missing, forbidden, or its store does not answer.
    """
    with _translated(path, lambda error: _input_error(error, path=path) if is_foreign(error) else None):
        yield


@contextmanager
def storage_errors(
    uri: str, *, done: str = "read", of: type[Exception] | tuple[type[Exception], ...] = Exception
) -> Iterator[None]:
    """Turns what a file system raises while the block uses `uri` into a StorageError.

    Args:
        uri: The place.
        done: What the block does with it, for the message: read, written or removed.
        of: Exceptions that are translated. All of them, where the block does nothing but use the place: a file system
            of a package that nobody knows here raises exceptions of its own.

    Raises:
        StorageError: the place is refused or not there.
        StorageOutageError: the store does not answer, is overloaded or full.
    """
    with _translated(uri, lambda error: _storage_error(error, uri=uri, done=done) if isinstance(error, of) else None):
        yield


@contextmanager
def output_errors(uri: str) -> Iterator[None]:
    """The first access to an output: every error of its file system becomes an OutputError.

    Raises:
        OutputError: there is no such file system, or it can't be reached with these options.
    """
    try:
        with _translated(uri, lambda error: _unreached(error, uri=uri)):
            yield
    except StorageError as error:
        raise _unreached(error.__cause__ or error, uri=uri) from error


@contextmanager
def table_errors(
    path: str, *, remedy: str, kind: type[UsageError] = OutputError, of_store: bool = True
) -> Iterator[None]:
    """Turns what goes wrong while a table of this project is read back into `kind`, with the remedy.

    With `of_store` also errors of the store are translated, and not only those of the file's content.

    Raises:
        UsageError: of the class `kind`: the file is gone, damaged, or lacks a column.
    """

    def translate(error: Exception) -> MemagentError | None:
        of_table = is_of_content(error) or (of_store and isinstance(error, (*FILE_ERRORS, KeyError, ValueError)))
        return kind(f"{path} can't be read: {_one_line(error)}; {remedy}") if of_table else None

    try:
        with _translated(path, translate):
            yield
    except InputError as error:
        if kind is InputError:
            raise
        raise kind(f"{path} can't be read: {_one_line(error)}; {remedy}") from error


def is_foreign(error: Exception) -> bool:
    """Whether an error comes from a file, a file format or a file system's client, and not from this project's code."""
    if isinstance(error, (*FILE_ERRORS, UnicodeDecodeError, ImportError, csv.Error)):
        return True
    return type(error).__module__.partition(".")[0] in CLIENT_PACKAGES


def is_of_content(error: Exception) -> bool:
    """Whether an error is about what a file holds. pyarrow raises a bare OSError for a damaged file too."""
    if isinstance(error, OSError):
        return type(error) is OSError and error.errno is None
    return isinstance(error, pa.ArrowException | UnicodeDecodeError | csv.Error)


@contextmanager
def _translated(uri: str, translate: Callable[[Exception], MemagentError | None]) -> Iterator[None]:
    """Raises what `translate` makes of an exception of the block; lets pass what it makes nothing of."""
    try:
        yield
    except MemagentError:
        raise
    except Exception as error:
        own = translate(error)
        if own is None:
            raise
        raise own from error if mask_url(uri) == uri else None  # else a traceback could show a secret of the URI


def _input_error(error: Exception, *, path: str) -> InputError:
    place = mask_url(path)  # as a whole: inside a text, a URL would end at a space of its path
    cause = str(error).strip().replace(path, place)
    if isinstance(error, FileNotFoundError):
        return InputUnreachableError(f"{place}: no such file or folder; check the path")
    if isinstance(error, PermissionError):
        return InputUnreachableError(f"{place}: not allowed to read it ({cause}); check its rights or your credentials")
    kind = InputError if is_of_content(error) else InputUnreachableError
    return kind(
        f"{place} can't be read: {cause or type(error).__name__}; is it whole, in the format that its "
        "ending or input.format says, and reachable with storage_options?"
    )


def _storage_error(error: Exception, *, uri: str, done: str) -> StorageError:
    kind = StorageError if isinstance(error, LASTING_ERRORS) else StorageOutageError
    return kind(f"{mask_url(uri)} can't be {done}: {type(error).__name__}: {error}")


def _unreached(error: BaseException, *, uri: str) -> OutputError:
    return OutputError(
        f"output: {mask_url(uri)} can't be reached: {type(error).__name__}: {_one_line(error)}; check the path, "
        "storage_options and your rights"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(DECORATION.sub(" ", str(error)).split())
