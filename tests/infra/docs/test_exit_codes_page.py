import re

from infra.docs.settings_page import PAGE as SETTINGS_PAGE
from jobs import arguments
from memagent_batch.events import WARNINGS, EventKind

TEXT = (SETTINGS_PAGE.parent / "exit-codes-and-events.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]


def test_page_has_every_exit_code() -> None:
    codes = {value for name, value in vars(arguments).items() if name.startswith("EXIT_")}
    assert {int(row[0]) for row in rows("Exit codes")[1:]} == {0, *codes}


def test_page_has_every_event_with_its_level() -> None:
    levels = {re.sub("`", "", row[0]): row[1] for row in rows("Log events")[1:]}
    assert levels.keys() == {kind.value for kind in EventKind}
    assert {name for name, level in levels.items() if level == "warning"} == {kind.value for kind in WARNINGS}
