from typing import Any

import pytest

from memagent_batch.errors import NotReadError, TooManyFailedError
from memagent_batch.runs.manifest import require_success


def manifest(*, ok: int = 0, failed: int = 0, not_read: int = 0) -> Any:
    """What a verdict needs of a manifest."""

    def reasons(name: str, num: int) -> list[dict[str, Any]]:
        return [{"error_type": name, "error_message": "a message", "num_readings": num}] if num else []

    return {
        "counts": {"asked": ok + failed + not_read, "ok": ok, "failed": failed, "not_read": not_read},
        "reasons": {"failed": reasons("E", failed), "not_read": reasons("N", not_read)},
    }


@pytest.mark.parametrize(
    ("counts", "share"), [({"ok": 1, "failed": 9}, 1.0), ({"ok": 9, "failed": 1}, 0.1), ({"ok": 1}, 0.0)]
)
def test_success_is_a_share_of_failed_readings_that_is_allowed(counts: dict[str, int], share: float) -> None:
    require_success(manifest(**counts), max_failed_share=share)


@pytest.mark.parametrize(
    ("counts", "share"),
    [({"failed": 2}, 1.0), ({"ok": 8, "failed": 2}, 0.1), ({"ok": 8, "failed": 2, "not_read": 9}, 0.1)],
)
def test_too_many_failed_readings_are_told_with_their_reasons(counts: dict[str, int], share: float) -> None:
    with pytest.raises(TooManyFailedError, match=r"2 of \d+ readings failed.* \(2 x E: a message\).*--retry-failed"):
        require_success(manifest(**counts), max_failed_share=share)


@pytest.mark.parametrize("counts", [{"ok": 1, "not_read": 3}, {"not_read": 3}, {"failed": 1, "not_read": 3}])
def test_readings_that_were_not_read_are_told_with_what_reads_them(counts: dict[str, int]) -> None:
    with pytest.raises(
        NotReadError, match=r"3 of \d readings were not read \(3 x N: a message\); the same command reads them"
    ):
        require_success(manifest(**counts), max_failed_share=1.0)
