"""Files of tests have changed just now, when a disk does not tell for sure; here they count as settled."""

import pytest

from memagent_batch.data.documents import listing


@pytest.fixture(autouse=True)
def settled_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
