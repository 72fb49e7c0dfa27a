"""The share of sentences that support the answer, by labels of a sample that draws some strata more than others."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memagent_batch.flows.review import import_labels, make_estimate, make_review
from memagent_batch.review.estimates import StratumSentences, estimate_evidence, sentence_labels
from memagent_batch.review.labels import Label, LabelKey, Purpose
from memagent_batch.store.location import Location
from tests.review.labelled_run import MadeRun, fill_sheet, take_in, text_of, write_run
from tests.review.test_review import ASKED


def sentences(size: int, drawn: int, *, right: int, wrong: int, left: int = 0) -> StratumSentences:
    """A stratum with so many readings whose one sentence was labelled, and further ones whose sentence was not."""
    labelled = [[True]] * right + [[False]] * wrong
    return StratumSentences(
        num_readings=size, num_drawn=drawn, num_with_sentences=right + wrong + left, labelled=labelled
    )


def test_each_stratum_counts_by_its_size_and_not_by_how_much_of_it_was_drawn() -> None:
    flagged = sentences(500, 150, right=135, wrong=15)
    not_flagged = sentences(9500, 600, right=20, wrong=20, left=20)
    failed = sentences(9, 9, right=0, wrong=0, left=3)
    found = estimate_evidence({"flagged": flagged, "not_flagged": not_flagged, "failed": failed})
    assert found is not None
    assert not_flagged.size == pytest.approx(950), "a tenth of the stratum has sentences"
    assert found.share == pytest.approx((500 * 0.9 + 950 * 0.5) / 1450)
    assert found.interval.low < found.share < found.interval.high
    assert 0.15 < found.interval.high - found.interval.low < 0.25
    assert (found.num_sentences, found.num_readings) == (190, 190)
    assert (found.strata, found.strata_left) == (["flagged", "not_flagged"], ["failed"])
    assert estimate_evidence({"failed": failed}) is None


def test_sentences_that_were_labelled_to_develop_by_do_not_count() -> None:
    key = LabelKey(document_hash="a", question_hash="q", char_start=0, char_end=9)
    at = datetime(2026, 11, 23, tzinfo=UTC)
    decision = "value_bool = true"
    label = Label(
        key=key, value="yes", reviewer="ada", labelled_at=at, blind=False, purpose=Purpose.DEVELOP, decision=decision
    )
    assert sentence_labels([label], purpose=Purpose.VALIDATE) == {}
    assert sentence_labels([label, replace(label, purpose=Purpose.VALIDATE)], purpose=Purpose.VALIDATE) == {key: "yes"}


def test_estimate_says_of_which_strata_the_sentences_are(output: Path, location: Location) -> None:
    truth = write_run(output, MadeRun(num_documents=300))
    folder = Path(make_review([location], replace(ASKED, labels="120", second_share=0.0))["folder"])
    data = fill_sheet(folder / "labels.csv", truth, reviewer="ada").decode()
    rows = list(csv.DictReader(io.StringIO(data, newline="")))
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, fieldnames=rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    for row in rows:
        text = text_of(int(row["document_id"].removeprefix("doc-")))
        span = {"char_start": text.index("The clause"), "char_end": len(text) - 1}
        writer.writerow({**row, **span, "label": "yes" if truth[row["document_id"]] else "no", "blind": "false"})
    import_labels(location, [take_in(output, sink.getvalue().encode())], reviewer=None)
    values, page = make_estimate([location], None, so_far=False, with_seen=False)
    precision = values["values"][0]["measures"]["precision"]["value"]
    assert values["evidence"]["share"] == pytest.approx(precision), "answers that flag alone rest on a sentence here"
    assert values["evidence"]["strata"] == ["flagged"]
    assert "each stratum by its size (flagged)." in page
