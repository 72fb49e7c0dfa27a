"""String constants of a Python file, which is parsed and never run. Serves the import of prompts from official code."""

import ast
import hashlib
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from memagent_batch.errors import PromptSetError
from memagent_batch.prompts.files import read_prompt_file


@dataclass(frozen=True, slots=True, kw_only=True)
class StringConstant:
    """A text that a file has under a name."""

    name: str
    """The name; empty for a text that is not in the file."""
    value: str
    """The text."""
    place: str
    """Name and line, or why there is none."""

    @property
    def sha256(self) -> str:
        """Hash of the text in UTF-8, 64 hex digits."""
        return hashlib.sha256(self.value.encode("utf-8", "surrogatepass")).hexdigest()


class PythonFile:
    """A file of Python code.

    Raises:
        PromptSetError: it is no UTF-8 file, or no Python.
    """

    def __init__(self, path: Path) -> None:
        """Reads and parses it."""
        self._path = path
        text = read_prompt_file(path)
        try:
            self._module = ast.parse(text, filename=str(path))
        except SyntaxError as error:
            raise PromptSetError(f"{path} is not Python code: line {error.lineno}: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise PromptSetError(f"{path} is not Python code: {error}") from error

    def constants(self, *, names: Set[str]) -> list[StringConstant]:
        """Strings that the top level assigns; of two assignments the last one holds, as when Python runs it.

        Raises:
            PromptSetError: one of these names is assigned something else.
        """
        assigned = {target.id: value for target, value in self._assignments()}
        return [
            self._constant(name, value)
            for name, value in assigned.items()
            if name in names or _string(value) is not None
        ]

    def require_whole(self, names: Set[str]) -> None:
        """Checks that nothing but assignments at the top level sets these names, so that what was read holds.

        Raises:
            PromptSetError: names the line.
        """
        whole = {id(target) for target, _ in self._assignments()}
        for node in ast.walk(self._module):
            if id(node) in whole or not names & _bound(node):
                continue
            name = min(names & _bound(node))
            raise PromptSetError(
                f"{self._path}, line {getattr(node, 'lineno', '?')}: {name} is not set as one whole text at the top "
                f"level; the file is not run, so give one in which a single assignment sets {name}"
            )

    def _assignments(self) -> list[tuple[ast.Name, ast.expr]]:
        found: list[tuple[ast.Name, ast.expr]] = []
        for statement in self._module.body:
            if isinstance(statement, ast.Assign):
                found += [(target, statement.value) for target in statement.targets if isinstance(target, ast.Name)]
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                found.append((statement.target, statement.value))
        return found

    def _constant(self, name: str, value: ast.expr) -> StringConstant:
        text = _string(value)
        if text is None:
            raise PromptSetError(
                f"{self._path}, line {value.lineno}: {name} is not a plain string; f-strings, calls and sums are not "
                "run, so write the whole text as one string"
            )
        return StringConstant(name=name, value=text, place=f"{name}, line {value.lineno}")


def _string(value: ast.expr) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _bound(node: ast.AST) -> set[str]:
    """Names that a part of the code binds or unbinds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return {name}
        case ast.Global(names=names):
            return set(names)
        case ast.alias(name=name, asname=asname):
            return {asname or name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()
