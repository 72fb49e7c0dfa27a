"""Exports of small tables, and the code and settings of docs/how-to/other-trainers.md."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from transformers import AutoTokenizer

import memagent_batch
from memagent_batch.apps.training.export import export_rollouts
from memagent_batch.data.store.location import Location
from tests.training.rollout_tables import write_table

PACKAGE = Path(memagent_batch.__file__).parent
TINY_MODEL = str(PACKAGE / "loop/models/tiny")
DOCS = PACKAGE.parent / "docs/how-to"
PAGE = (DOCS / "other-trainers.md").read_text()
Groups = list[list[float | None]]
"""Groups, each the rewards of its samples; None is a sample that failed."""


def export_groups(folder: Path, groups: Groups, *, to: str, **table: Any) -> Path:
    """Exports a table of groups; returns the file. The table lies beside it, in `rollouts`."""
    source = write_table(folder / "rollouts", groups, **table)
    export_rollouts(Location(uri=str(source)), Location(uri=str(folder / f"{to}.parquet")), to=to)
    return folder / f"{to}.parquet"


def block_of_page(title: str) -> str:
    """The text of the page's code block with this title."""
    text: str
    [text] = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE, flags=re.MULTILINE | re.DOTALL)
    return text


def module_of_page(title: str) -> ModuleType:
    """The module of this file name that the page offers, importable from then on."""
    module = ModuleType(title.removesuffix(".py"))
    file = DOCS / "trainers" / title
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    return module


def settings_of_page(title: str, **changes: Any) -> list[str]:
    """The settings of the page's command; `changes` by the last part of their names."""
    settings = [word.split("=", 1) for word in shlex.split(block_of_page(title), posix=False) if "=" in word]
    return [f"{name}={changes.get(name.rsplit('.', 1)[-1], value)}" for name, value in settings]


def tiny_tokenizer() -> Any:
    """The shipped policy's tokeniser, as trainers load it."""
    return AutoTokenizer.from_pretrained(TINY_MODEL)
