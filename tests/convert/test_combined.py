"""Every word that is planted in files of combined features is read, or a loss names it."""

from pathlib import Path
from random import Random

import pytest

from memagent_batch.data.ingest.files import FileConverter
from tests.convert import combined_office, combined_other, combined_pdf
from tests.convert.combined import KINDS, Draft, Kind, Sums

MODULES = (combined_office, combined_other, combined_pdf)
"""They make the kinds."""
FEATURES = [(kind, name) for kind in KINDS.values() for name in kind.features]
Random(0).shuffle(FEATURES)


def convert(converter: FileConverter, folder: Path, draft: Draft, kind: Kind, *, first: str, sums: Sums) -> None:
    file = folder / f"file.{kind.ending}"
    file.write_bytes(kind.made(draft, first=first))
    sums.add(draft.planted, converter.convert(file, name=file.name))


@pytest.mark.parametrize(
    "seeds",
    [range(len(FEATURES)), pytest.param(range(len(FEATURES), 2000), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_planted_words_of_combined_features_are_read_or_named_by_a_loss(
    file_converter: FileConverter, tmp_path: Path, seeds: range
) -> None:
    sums = Sums()
    for seed in seeds:
        kind, first = FEATURES[seed % len(FEATURES)]
        convert(file_converter, tmp_path, Draft(Random(seed), seed=seed), kind, first=first, sums=sums)
    print(sums)
    assert (sums.missing, sums.only_named, sums.crashes) == ([], [], [])


def test_planted_word_that_is_nowhere_is_missing(file_converter: FileConverter, tmp_path: Path) -> None:
    draft, sums = Draft(Random(0)), Sums()
    lost = draft.word()
    convert(file_converter, tmp_path, draft, KINDS["txt"], first="line", sums=sums)
    assert (sums.missing, sums.read) == ([f"0 : {lost}"], sums.contained - 1)
