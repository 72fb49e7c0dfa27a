"""What the figures of `make metrics` count."""

import ast
import json
from pathlib import Path

from tests.architecture import metrics
from tests.architecture.metrics import Figure, Source

SETTINGS = """
def takes(settings: Settings) -> None: ...
def may_take(settings: "Settings | None" = None) -> None: ...
class Job:
    def keyword(self, *, job: JobConfig) -> None: ...
def one_group(settings: PolicyConfig) -> Settings: ...
"""


def source(path: str, text: str) -> Source:
    return Source(path=Path(path), text=text, tree=ast.parse(text))


def test_functions_with_all_settings_are_found_by_their_parameters() -> None:
    figure = metrics.whole_settings([source("a.py", SETTINGS)])
    assert [item.split()[-1] for item in figure.items] == ["takes", "may_take", "keyword"]
    assert figure.value == 3


def test_names_in_two_files_count_once_private_ones_too_but_not_what_every_file_may_have() -> None:
    first = "from x import Taken\n__all__ = []\nRow = dict\ndef main(): ...\ndef _write(): ...\nclass Own: ...\n"
    second = "class Taken: ...\n__all__ = []\nclass Row:\n    def run(self): ...\ndef main(): ...\n_write: int = 1\n"
    third = "if True:\n    Row, Other = 1, 2\nelse:\n    Row = 3\ndef run(): ...\n"
    figure = metrics.names_twice([source("a.py", first), source("b.py", second), source("c.py", third)])
    assert list(figure.items) == ["Row: a.py, b.py, c.py", "_write: a.py, b.py"]
    assert (figure.value, figure.note) == (2, "1 public")


def test_untyped_rows_are_counted_by_line_and_not_in_texts() -> None:
    text = 'def f(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]: ...\nx: dict[str, int]\n"dict[str, Any]"\n'
    assert metrics.untyped_rows([source("a.py", text)]).items == ["a.py:1"]


def test_fullest_folder_counts_neither_packages_own_files_nor_folders_below() -> None:
    paths = ["a/__init__.py", "a/x.py", "a/b/x.py", "a/b/y.py", "c/z.py"]
    figure = metrics.fullest_folder([source(path, "") for path in paths])
    assert (figure.value, figure.note) == (2, "a/b")


def test_lengths_of_files_and_functions() -> None:
    long = source("long.py", "#\n" * (metrics.LONGEST_FILE_LINES + 1))
    short = source("short.py", "class A:\n    def f(self):\n        '''Does.'''\n\n        return 1\n")
    assert metrics.long_files([short, long]).items == ["long.py 351"]
    figure = metrics.longest_function([short, long])
    assert (figure.value, figure.note) == (4, "short.py:2 f")


def test_table_has_a_column_for_each_checkout_and_a_dash_where_nothing_was_measured() -> None:
    figures = {
        "/old": [Figure(name="lines", value=1200)],
        "/new": [Figure(name="lines", value=None, note="not measured: why")],
    }
    assert metrics.as_table(figures).splitlines()[1].split(maxsplit=3) == ["lines", "1,200", "-", "not measured: why"]
    assert json.loads(metrics.as_json(figures))["/old"]["lines"]["value"] == 1200


def test_frames_of_a_turn_are_measured_in_this_checkout() -> None:
    figure = metrics.turn_frames(metrics.CHECKOUT)
    assert figure.value, figure.note


def test_frames_of_a_checkout_without_these_modules_are_not_measured(tmp_path: Path) -> None:
    package = tmp_path / "memagent_batch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    figure = metrics.turn_frames(tmp_path)
    assert figure.value is None
    assert "ModuleNotFoundError" in figure.note
