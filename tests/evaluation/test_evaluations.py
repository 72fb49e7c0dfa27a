import json
from pathlib import Path

import pytest

from memagent_batch.errors import OutputError
from memagent_batch.evaluation.record import EVALUATION_FILE, Evaluation, read_evaluation, write_evaluation
from memagent_batch.files.location import Location


def test_evaluation_without_variants_reads_as_it_was_written(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path))
    evaluation = Evaluation(suite="file:///suite", suite_folder="file:///suite", variants=())

    write_evaluation(output, evaluation)

    assert read_evaluation(output) == evaluation


@pytest.mark.parametrize(
    ("broken", "named"),
    [({"variants": None}, "NoneType"), ({"suite": None}, "'suite'"), ({"variants": [{"nom": "x"}]}, "nom")],
)
def test_broken_evaluation_is_refused_with_file_and_remedy(
    tmp_path: Path, broken: dict[str, object], named: str
) -> None:
    output = Location(uri=str(tmp_path))
    write_evaluation(output, Evaluation(suite="file:///suite", suite_folder="file:///suite", variants=()))
    path = tmp_path / EVALUATION_FILE
    value = json.loads(path.read_text()) | broken
    path.write_text(json.dumps({name: part for name, part in value.items() if part is not None or name != "suite"}))

    with pytest.raises(OutputError, match=f"{EVALUATION_FILE} is not whole .*{named}.*restore it"):
        read_evaluation(output)
