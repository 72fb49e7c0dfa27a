"""The notebook of the docs, executed as a reader would: a kernel of its own, the shipped policy, real vLLM."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow]

NOTEBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "python.ipynb"


def shown(cell: Any) -> str:
    """What the last line of a cell shows, with one space between words."""
    texts = [output["data"]["text/plain"] for output in cell["outputs"] if "data" in output]
    return " ".join(texts[-1].split())


def test_notebook_of_the_docs_runs_and_shows_right_answers(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, answer, turns, monday, pipeline, readings, difference = [c for c in notebook.cells if c.cell_type == "code"]
    assert shown(answer) == "'4071936'"
    assert "('update/0', 0, " in shown(turns)
    assert "letter code ok 4071936" in shown(monday)
    assert "memo code ok 5225404" in shown(monday)
    assert "letter 4071936" in shown(pipeline)
    assert "memo 9282777" in shown(pipeline)
    assert shown(readings) == "{'read': 1, 'kept': 1, 'unreadable': 0, 'not_read': 0}"
    assert shown(difference).endswith("0 memo [document] 5225404 9282777")
