"""What the manifest of a run lets its command end with."""

from typing import Any

import pytest

from memagent_batch.config.job import RunConfig
from memagent_batch.errors import NotReadError, TooManyFailedError, TooManyRemovedError, UnreadSourcesError
from memagent_batch.run.manifest import require_documents, require_sources_read, require_success


def manifest(*, ok: int = 0, failed: int = 0, not_read: int = 0, unread_failed: int = 0) -> Any:
    """What a verdict needs of a manifest; `unread_failed` are among the failed readings, two of a document."""

    def reasons(name: str, num: int) -> list[dict[str, Any]]:
        return [{"error_type": name, "error_message": "a message", "num_readings": num}] if num else []

    unread = {"num_unread": unread_failed, "num_unread_failed": unread_failed}
    return {
        "counts": {"asked": ok + failed + not_read, "ok": ok, "failed": failed, "not_read": not_read},
        "reasons": {"failed": reasons("E", failed), "not_read": reasons("N", not_read)},
        "unread": {**unread, "num_unread_documents": unread_failed // 2},
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
    with pytest.raises(TooManyFailedError, match=r"2 of \d+ readings failed.* \(2 x E: a message\).*retry_failed"):
        require_success(manifest(**counts), max_failed_share=share)


def test_answers_whose_follow_up_questions_failed_count_as_failed_readings() -> None:
    reasons = [{"error_type": "F", "error_message": "no value", "num_readings": 3}]
    unclosed: Any = {**manifest(ok=8), "num_follow_ups_failed": 3}
    unclosed["reasons"]["follow_up_failed"] = reasons
    said = r"3 of 8 readings failed, 3 of them in what is asked after the answer.*\(3 x F: no value\).*retry_failed"
    with pytest.raises(TooManyFailedError, match=said):
        require_success(unclosed, max_failed_share=0.3)
    require_success(unclosed, max_failed_share=0.4)


@pytest.mark.parametrize("counts", [{"ok": 1, "not_read": 3}, {"not_read": 3}, {"failed": 1, "not_read": 3}])
def test_readings_that_were_not_read_are_told_with_what_reads_them(counts: dict[str, int]) -> None:
    said = r"3 of \d readings not read \(3 x N: a message\); the same command reads them"
    with pytest.raises(NotReadError, match=said):
        require_success(manifest(**counts), max_failed_share=1.0)


def changed_by(documents: dict[str, int]) -> Any:
    return {"changes": {"documents": documents}}


@pytest.mark.parametrize(("removed", "share"), [(50, 0.5), (49, 0.5), (100, 1.0), (0, 0.0)])
def test_documents_that_are_gone_are_allowed_up_to_a_share(removed: int, share: float) -> None:
    changes = {"added": 30, "changed": 10, "removed": removed, "unchanged": 90 - removed}
    require_documents(changed_by(changes), RunConfig(output="out", max_removed_share=share))


def test_too_many_documents_that_are_gone_are_told() -> None:
    changes = {"added": 1, "changed": 0, "removed": 200, "unchanged": 30}
    with pytest.raises(TooManyRemovedError, match=r"200 of 230 documents of the last run are gone.*memagent diff"):
        require_documents(changed_by(changes), RunConfig(output="out"))
    require_documents(changed_by(changes), RunConfig(output="out", adopt_output=True))
    require_documents(changed_by(changes) | {"again": {}}, RunConfig(output="out"))


def test_sources_that_were_not_read_are_no_failures_and_end_the_command_in_their_own_way() -> None:
    unread = manifest(failed=4, unread_failed=4)
    require_success(unread, max_failed_share=0.0)
    with pytest.raises(UnreadSourcesError, match="2 documents were not read to the end, 4 answers not_read"):
        require_sources_read(unread["unread"])
    require_sources_read(manifest(ok=1, failed=1)["unread"])
    require_sources_read({"num_unread": 3, "num_unread_documents": 0, "num_unread_failed": 0})
