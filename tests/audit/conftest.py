"""The scan that all checks share."""

from pathlib import Path

import pytest

from tests.audit.scan import Copy, make_scan
from tests.flows.grown import Stream


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Stream:
    """Three nights, made once; nothing may change it."""
    return make_scan(tmp_path_factory.mktemp("scan"), text_model)


@pytest.fixture
def copy(scan: Stream, tmp_path: Path) -> Copy:
    return Copy(scan, tmp_path / "copy")
