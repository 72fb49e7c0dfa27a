"""One corpus in five forms: the same texts."""

from pathlib import Path

import pytest

from memagent_batch.config.sources import InputConfig
from tests.inputs.lake.forms import FORMS, KNOBS, TEXTS, read


@pytest.mark.parametrize("form", FORMS)
def test_index_and_fetch_every_form_has_the_same_texts(form: str, tmp_path: Path) -> None:
    uri = FORMS[form](tmp_path / form)
    assert read(uri, KNOBS.get(form, InputConfig())) == TEXTS
