import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

from infra.docs.settings_page import PAGE as SETTINGS_PAGE
from memagent_batch import errors
from memagent_batch.logs import EventKind, as_json
from memagent_batch.run.executors.reports import Event

ROOT = Path(__file__).parents[3]
PACKAGES = ("memagent_batch", "pipelines")
TEXT = (SETTINGS_PAGE.parent / "exit-codes-and-events.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]


def test_page_has_every_exit_code() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MemagentError)
    ]
    codes = {kind.exit_code for kind in kinds}
    assert [int(row[0]) for row in rows("Exit codes")[1:]] == sorted({0, *codes, errors.EXIT_INTERRUPTED})


def logged_levels() -> Iterator[tuple[EventKind, str]]:
    """Kind and level of every `log.LEVEL(..., extra={"event": EventKind.KIND, ...})` in the code."""
    texts = [path.read_text(encoding="utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    for call in [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]:
        for kind in re.findall(r"'event': EventKind\.(\w+)", " ".join(map(ast.unparse, call.keywords))):
            if (level := re.fullmatch(r"log\.(\w+)", ast.unparse(call.func))) is not None:
                yield EventKind[kind], level[1]


def test_page_has_every_event_with_its_level() -> None:
    section = TEXT.split("## Log events\n")[1].split("\n## ")[0]
    levels = dict(re.findall(r"^- `(\w+)` \((\w+)\): ", section, re.MULTILINE))
    assert levels.keys() == {kind.value for kind in EventKind}

    logged = set(logged_levels())
    assert (EventKind.RUN_CLOSED, "info") in logged
    other = json.loads(as_json(b"a line of a library"))
    kinds_logged = {kind for kind, _ in logged} | {EventKind(other["event"])}
    reported = {
        (kind, logging.getLevelName(Event(kind=kind, message="").level).lower())
        for kind in EventKind
        if kind not in kinds_logged
    }
    assert {(kind, levels[kind]) for kind in EventKind} == logged | reported | {(other["event"], other["level"])}
