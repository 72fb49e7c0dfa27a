import csv
import errno

import pyarrow as pa
import pytest

from memagent_batch.data.store.errors import input_errors, output_errors, storage_errors, table_errors
from memagent_batch.errors import (
    InputError,
    InputUnreachableError,
    MemagentError,
    OutputError,
    StorageError,
    StorageOutageError,
)

FULL = OSError(errno.ENOSPC, "No space left on device")
NO_ROUTE = type("EndpointConnectionError", (Exception,), {"__module__": "botocore.exceptions"})("no route")


def test_input_errors_of_our_own_code_passes() -> None:
    with pytest.raises(KeyError), input_errors("some/file"):
        raise KeyError("bug")


@pytest.mark.parametrize(
    ("error", "as_input", "as_storage"),
    [
        (FileNotFoundError("gone"), InputUnreachableError, StorageError),
        (PermissionError("no"), InputUnreachableError, StorageError),
        (FULL, InputUnreachableError, StorageOutageError),
        (NO_ROUTE, InputUnreachableError, StorageOutageError),
        (OSError("a damaged file, as pyarrow raises it"), InputError, StorageOutageError),
        (pa.ArrowInvalid("magic"), InputError, StorageOutageError),
        (csv.Error("quote"), InputError, StorageOutageError),
    ],
)
def test_errors_one_exception_is_classified_by_what_was_done(
    error: Exception, as_input: type[MemagentError], as_storage: type[MemagentError]
) -> None:
    with pytest.raises(InputError) as of_input, input_errors("place"):
        raise error
    with (
        pytest.raises(StorageError, match="place can't be written") as of_storage,
        storage_errors("place", done="written"),
    ):
        raise error
    with pytest.raises(OutputError, match=r"output: place can't be reached: .*check the path"), output_errors("place"):
        raise error
    assert (type(of_input.value), type(of_storage.value)) == (as_input, as_storage)
    assert of_input.value.__cause__ is error


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError, TimeoutError, pa.ArrowInvalid])
def test_input_errors_show_no_secret_of_a_url_with_spaces(kind: type[Exception]) -> None:
    place = "https://user:secret@host/my report.pdf?X-Amz-Signature=secret"
    with (
        pytest.raises(InputError, match=r"^https://host/my report\.pdf\?X-Amz-Signature=\*\*\*") as found,
        input_errors(place),
    ):
        raise kind(f"no answer for {place}")
    assert "secret" not in str(found.value)


def test_output_errors_names_the_cause_of_a_storage_error() -> None:
    with (
        pytest.raises(OutputError, match="can't be reached: PermissionError: no"),
        output_errors("place"),
        storage_errors("place/file"),
    ):
        raise PermissionError("no")


def test_storage_errors_of_files_alone_let_the_fault_of_the_block_pass() -> None:
    with pytest.raises(KeyError), storage_errors("place", of=(OSError, pa.ArrowException)):
        raise KeyError("bug")


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), pa.ArrowInvalid("magic"), KeyError("column")])
def test_table_errors_names_file_and_remedy(error: Exception) -> None:
    with (
        pytest.raises(OutputError, match=r"file can't be read: .*; run it again"),
        table_errors("file", remedy="run it again"),
    ):
        raise error


def test_table_errors_of_content_alone_leave_the_store_to_others() -> None:
    with pytest.raises(StorageOutageError), storage_errors("file"), table_errors("file", remedy="", of_store=False):
        raise FULL


@pytest.mark.parametrize("boundary", [input_errors, output_errors, storage_errors])
def test_errors_of_a_place_with_a_secret_show_nothing_of_it(boundary: object) -> None:
    with pytest.raises(MemagentError) as caught, boundary("s3://key:secret@bucket/a"):  # type: ignore[operator]
        raise PermissionError("no")
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)
