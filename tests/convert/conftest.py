"""A converter server of the built-in converters, for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memagent_batch.data.ingest.files import FileConverter
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from tests.convert.rows import RowsOf, chosen


@pytest.fixture(scope="module")
def file_converter() -> Iterator[FileConverter]:
    with ConverterServer(search_path=(str(Path(__file__).parents[2]),)) as server:
        yield FileConverter(server, converters=chosen(), limits=Limits(seconds=120))


@pytest.fixture
def rows_of(file_converter: FileConverter, tmp_path: Path) -> RowsOf:
    return RowsOf(file_converter, tmp_path)
