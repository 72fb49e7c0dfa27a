"""Pages of the docs say what the code says."""

import ast
import inspect
import re
from pathlib import Path
from pkgutil import resolve_name

from annotated_types import Ge, Gt

from infra.docs import commands_page, settings_page, tables_page
from memagent_batch.cli.options import options_of
from memagent_batch.cli.settings import JobSettings
from memagent_batch.config.ingest import IngestConfig
from memagent_batch.data.ingest.readers.converter import PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind
from tools.metrics import TURN, turn_file

ROOT = Path(__file__).parents[3]
TROUBLESHOOTING = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")


def test_pages_in_docs_equal_the_schemas_the_settings_and_the_commands() -> None:
    assert tables_page.PAGE.read_text(encoding="utf-8") == tables_page.tables_page()
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.settings_page()
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.commands_page()


def test_setting_of_converters_names_every_kind_of_file() -> None:
    (kinds,) = re.findall(r"for a kind \((.*?)\)", str(IngestConfig.model_fields["converter"].description), re.DOTALL)
    assert kinds.split() == " ".join(f"{kind}," for kind in FileKind).rstrip(",").split()


def test_table_of_losses_has_every_kind_with_its_severity() -> None:
    page = (ROOT / "docs/how-to/ingest.md").read_text(encoding="utf-8")
    severity, severities = "", dict[str, str]()
    for first, kind in re.findall(r"^\| (?:`(\w+)` )?\| `(\w+)` \|", page.partition("| severity |")[2], re.MULTILINE):
        severity = first or severity
        severities[kind] = severity
    assert severities == {status.loss_kind: status.severity.value for status in PartStatus}


def test_every_setting_has_a_description() -> None:
    assert all(setting.info.description for setting in options_of(JobSettings))
    assert any(isinstance(item, Ge | Gt) for setting in options_of(JobSettings) for item in setting.info.metadata)


def test_troubleshooting_page_has_messages_that_the_code_prints() -> None:
    """Each part between dots is in the code, or in mistakes.yaml."""
    texts = [(ROOT / "tests/cli/mistakes.yaml").read_text(encoding="utf-8")]
    for path in sorted((ROOT / "memagent_batch").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts += [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    printed = "\n".join(texts)
    first = TROUBLESHOOTING.split("## Answers that look wrong")[0]
    messages = re.findall(r"^\| `(.*?)` \| ", first, flags=re.MULTILINE)
    assert len(messages) > 10
    parts = [part for message in messages for part in message.split("…") if part.strip(" ,;")]
    assert [part for part in parts if part.strip(" ,;") not in printed] == []


def test_page_of_the_loop_names_functions_that_are_there() -> None:
    page = (ROOT / "docs/explanation/how-it-works.md").read_text(encoding="utf-8")
    section = page.split("## The life of a reading\n")[1].split("\n## ")[0]
    steps = re.findall(r"^\d\. (.*?)(?=^\d\. |^\n)", section, re.DOTALL | re.MULTILINE)
    assert len(steps) == 8
    for step in steps:
        functions = re.findall(r"`(\w+)`\s+in\s+`([a-z_/]+)\.py`", step)
        modules = [(name, path.replace("/", ".")) for name, path in functions]
        assert modules, step
        assert all(callable(resolve_name(f"memagent_batch.{module}:{name}")) for name, module in modules), step
    paths = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page)
    assert [path for path in paths if not ((ROOT / "memagent_batch" / path).exists() or (ROOT / path).exists())] == []


def test_files_of_one_turn_are_those_that_the_code_goes_through_and_the_page_names() -> None:
    functions = {name: resolve_name(f"memagent_batch.{name}") for name in TURN}
    for before, (name, call) in zip(functions.values(), list(TURN.items())[1:], strict=False):
        assert call in inspect.getsource(before), f"{before.__qualname__} does not call {name}"
    files = {turn_file(ROOT, name).relative_to(ROOT / "memagent_batch").as_posix() for name in TURN}
    page = (ROOT / "docs/explanation/how-it-works.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^To follow one turn, open six files: (.*?)\. What", page, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"`([a-z_/]+\.py)`", named)) == files
    assert len(files) == 6
