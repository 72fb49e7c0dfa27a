"""Renames what `tools/names.toml` lists, in a whole checkout: `python tools/rename.py [--check]`.

Old names on the left, new ones on the right. It is for branches that were begun before a rename, and for plug-ins and
job files that use the old names: `python tools/rename.py --root MY_PROJECT`. A second application changes nothing. The
lines that it makes too long are wrapped; `ruff check --fix` and `ruff format` do the rest.
"""

import argparse
import ast
import io
import re
import subprocess
import textwrap
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("names.toml")
UNTOUCHED = ("tools/names.toml", "tools/rename.py", "tests/test_language.py", "requirements/", "LICENSE")
"""Files that hold old names on purpose."""
TEXT_FILES = (".md", ".yaml", ".yml", ".json", ".html", ".js", ".toml", ".ipynb", ".j2", ".jinja", ".txt", "Makefile")
PROSE_FILES = (".md", ".yaml", ".yml", ".html", ".ipynb", ".j2", ".jinja", "Makefile")
MAX_COLUMNS = 120

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
IDENTIFIER = re.compile(r"[A-Za-z0-9]+_\w+|_\w+|[A-Z]?[a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z][A-Z0-9]{3,}")
"""Words of a text that can only be a name of code."""
Patterns = Sequence[tuple[re.Pattern[str], str]]
QUOTED = re.compile(r"(?<=`)\w+(?=`)")
"""Words of a text that are names of code though they may be words of English."""
ARGUMENT = re.compile(r"(?m)(?<=^ {8})[a-z_]+(?=: )|(?<=^ {12})[a-z_]+(?=: )")
"""Names of arguments in a docstring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A turn of phrase and what replaces it."""

    pattern: re.Pattern[str]
    replacement: str
    not_after: tuple[str, ...] = ()
    """Words before which it stays as it is."""

    def replace(self, text: str) -> str:
        """The text without the phrase; a line break inside a phrase stays one."""
        return self.pattern.sub(self._replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        before = WORD.findall(match.string[max(0, match.start() - 40) : match.start()])
        if self.not_after and before and before[-1].lower() in self.not_after:
            return match[0]
        new = match.expand(self.replacement)
        broken = re.search(r"\s*\n\s*", match[0])
        return new.replace(" ", broken[0], 1) if broken else new


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the table lists."""

    moves: Mapping[str, str]
    """Path prefixes; the first that fits counts."""
    file_names: Patterns
    """Parts of the names of other files."""
    names: Mapping[str, str]
    """Names of code wherever they stand."""
    parts: Patterns
    """Parts of names of code."""
    defined: Mapping[str, str]
    """`part of a path:name`: a name at the top level of these files, there and where it is imported."""
    within: Mapping[str, Mapping[str, str]]
    """Names in files below these paths alone."""
    stored: frozenset[str]
    """Names of columns and files that outputs have; they stay."""
    texts: Sequence[tuple[re.Pattern[str], str, re.Pattern[str] | None]]
    """Patterns in the text of any file; not in lines with the third."""
    phrases: Sequence[Phrase]
    data: tuple[str, ...]
    """Paths of files whose strings are data: prompts, word lists."""

    def renamed(self, name: str, local: Mapping[str, str]) -> str:
        """The new name of a word of code."""
        if name in self.stored:
            return name
        if name in local or name in self.names:
            return local.get(name) or self.names[name]
        for pattern, new in self.parts:
            name = pattern.sub(new, name)
        return name


def main() -> None:
    """Renames, or says with --check what would be renamed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="default: this checkout")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if something would change")
    options = parser.parse_args()
    changed = rename(options.root, read_names(TABLE), is_dry=options.check)
    print("\n".join(changed) or "nothing to rename")
    raise SystemExit(options.check and bool(changed))


def read_names(table: Path) -> Names:
    """The table of old and new names."""
    content: dict[str, Any] = tomllib.loads(table.read_text(encoding="utf-8"))
    return Names(
        moves=content["moves"],
        file_names=_patterns(content["file_names"]),
        names=content["names"],
        parts=_patterns(content["parts"]),
        defined=content["defined"],
        within=content["within"],
        stored=frozenset(content["stored"]["names"]),
        texts=[
            (re.compile(old), new, re.compile(unless[0]) if unless else None)
            for old, new, *unless in content["texts"]["entries"]
        ],
        phrases=[
            Phrase(
                pattern=re.compile(old.replace(" ", r"\s+")), replacement=new, not_after=tuple("".join(words).split())
            )
            for old, new, *words in content["phrases"]["entries"]
        ],
        data=tuple(content["data"]["paths"]),
    )


def rename(root: Path, names: Names, *, is_dry: bool) -> list[str]:
    """Renames in all files of a checkout; returns a line for each change."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, check=True
    )
    paths = sorted(name for name in listed.stdout.decode().splitlines() if (root / name).is_file())
    paths = [name for name in paths if not name.startswith(UNTOUCHED)]
    sources = {name: (root / name).read_text(encoding="utf-8") for name in paths if name.endswith((".py", *TEXT_FILES))}
    local = _local_names(sources, names)
    moves = {old: new for old, new in names.moves.items() if old.endswith("/") or old in paths}
    modules = [*_moved_modules(moves), *_moved_modules(_renamed_files(paths, names))]
    changed = []
    for name, old in sources.items():
        new = _renamed_text(name, old, names, local[name], modules=modules)
        if new != old:
            changed.append(f"changed {name}")
            if not is_dry:
                (root / name).write_text(new, encoding="utf-8")
    for name in paths:
        target = moved(name, names)
        if target != name:
            changed.append(f"moved   {name} -> {target}")
            if not is_dry:
                _move(root, name, target)
    return changed


def moved(path: str, names: Names) -> str:
    """Where a file goes."""
    for old, new in names.moves.items():
        if path.startswith(old):
            path = new + path.removeprefix(old)
            break
    folder, _, name = path.rpartition("/")
    for pattern, new in names.file_names:
        name = pattern.sub(new, name)
    return f"{folder}/{name}" if folder else name


def _renamed_files(paths: Sequence[str], names: Names) -> dict[str, str]:
    """Files with another name, from the folder that they go to."""
    targets = {path: moved(path, names) for path in paths if path not in names.moves}
    found = {
        target.rpartition("/")[0] + path[path.rfind("/") :]: target for path, target in targets.items() if "/" in path
    }
    return {old: new for old, new in found.items() if old != new}


def _move(root: Path, name: str, target: str) -> None:
    source, place = root / name, root / target
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        if place.read_bytes() != source.read_bytes():
            raise SystemExit(f"error: {name} and {target} both exist and differ; rename one of them first")
        source.unlink()
    else:
        source.rename(place)
    if place.suffix == ".py":
        _make_packages(root, place.parent)
    for folder in source.parents:
        if folder == root or [each for each in folder.iterdir() if each.name != "__pycache__"]:
            break
        for cached in folder.rglob("*.pyc"):
            cached.unlink()
        for empty in sorted(folder.rglob("*"), reverse=True):
            empty.rmdir()
        folder.rmdir()


def _make_packages(root: Path, folder: Path) -> None:
    """Folders of moved modules are packages, as the folder that they came from."""
    while folder != root and (folder.parent == root or (folder.parent / "__init__.py").exists()):
        (folder / "__init__.py").touch()
        folder = folder.parent


def _moved_modules(moves: Mapping[str, str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """Dotted and slashed forms of the moves, for imports and texts."""
    for old, new in moves.items():
        yield re.compile(rf"(?<![\w/.-]){re.escape(old)}" + ("" if old.endswith("/") else r"(?!\w)")), new
        if old.endswith(("/", ".py")):
            dotted_old, dotted_new = (each.rstrip("/").removesuffix(".py").replace("/", ".") for each in (old, new))
            yield re.compile(rf"(?<![\w.]){re.escape(dotted_old)}(?!\w)"), dotted_new
            (package_old, name_old), (package_new, name_new) = (
                (package, name) for package, _, name in (each.rpartition(".") for each in (dotted_old, dotted_new))
            )
            yield (
                re.compile(rf"from {re.escape(package_old)} import {name_old}\b(?! *,)"),
                f"from {package_new} import {name_new}",
            )


def _patterns(table: Mapping[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(old), new) for old, new in table.items()]


def _local_names(sources: Mapping[str, str], names: Names) -> Mapping[str, dict[str, str]]:
    """New names that hold in some files only, by file."""
    local: dict[str, dict[str, str]] = defaultdict(dict)
    for prefixes, renames in names.within.items():
        for path in sources:
            if path.startswith(tuple(prefixes.split())):
                local[path].update(renames)
    definitions, imports = _places(sources, {key.partition(":")[2] for key in names.defined})
    for key, new in names.defined.items():
        part, _, old = key.partition(":")
        for path in (each for each in definitions[old] if part in each):
            for user in (path, *imports[path.removesuffix(".py").replace("/", "."), old]):
                local[user][old] = new
    return local


def _places(
    sources: Mapping[str, str], wanted: set[str]
) -> tuple[Mapping[str, list[str]], Mapping[tuple[str, str], list[str]]]:
    """The files that define names at their top level, by name, and those that import them, by module and name."""
    definitions: dict[str, list[str]] = defaultdict(list)
    imports: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, tree in ((path, ast.parse(source)) for path, source in sources.items() if path.endswith(".py")):
        for name in wanted.intersection(_defined(tree)):
            definitions[name].append(path)
        for module, name in _imported(tree):
            imports[module, name].append(path)
    return definitions, imports


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines at its top level."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Modules and names of `from module import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def _renamed_text(path: str, text: str, names: Names, local: Mapping[str, str], *, modules: Patterns) -> str:
    for pattern, new in modules:
        text = pattern.sub(new, text)
    for pattern, new, unless in names.texts:
        lines = text.splitlines(keepends=True)
        text = "".join(line if unless and unless.search(line) else pattern.sub(new, line) for line in lines)
    if path.endswith(".py"):
        return _wrapped(_renamed_python(path, text, names, local))
    renamed = IDENTIFIER.sub(lambda match: names.renamed(match[0], {}), text)
    return _plain(renamed, names) if path.endswith(PROSE_FILES) else renamed


def _renamed_python(path: str, source: str, names: Names, local: Mapping[str, str]) -> str:
    """Python by token: names of code, and texts of strings and comments."""
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    pieces, end, is_statement, is_module = list[str](), 0, True, False
    has_data = path.startswith(names.data)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start = offsets[token.start[0] - 1] + token.start[1]
        match token.type:
            case tokenize.NAME:
                is_module = (is_statement and token.string == "from") or (is_module and token.string != "import")
                new = token.string if is_module else names.renamed(token.string, local)
            case tokenize.COMMENT:
                new = _prose(token.string, names, local)
            case tokenize.STRING:
                text = ARGUMENT.sub(_renaming(names, local), token.string) if is_statement else token.string
                new = _string(text, names, local, has_data=has_data and not is_statement)
            case _:
                new = token.string
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            is_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
        if new != token.string:
            pieces += [source[end:start], new]
            end = start + len(token.string)
    return "".join([*pieces, source[end:]])


def _string(literal: str, names: Names, local: Mapping[str, str], *, has_data: bool) -> str:
    """A string: names of code in it, and its turns of phrase unless it is data."""
    prefix = literal[: len(literal) - len(literal.lstrip("rbfuRBFU"))]
    if "b" in prefix.lower():
        return literal
    content = literal[len(prefix) + 1 : -1]
    if content.isidentifier():  # a key, a column, an annotation
        is_name = "knob" in content or IDENTIFIER.fullmatch(content) or (content in local and content[0].isupper())
        return f"{literal[: len(prefix) + 1]}{names.renamed(content, local) if is_name else content}{literal[-1]}"
    is_formatted = "f" in prefix.lower()
    pieces = (
        re.split(r"((?<!\{)(?:\{\{)*\{(?!\{)[^{}]*(?:\{[^{}]*\}[^{}]*)*\})", literal) if is_formatted else [literal]
    )
    found = [
        _expression(piece, names, local) if number % 2 else IDENTIFIER.sub(_renaming(names, {}), piece)
        for number, piece in enumerate(pieces)
    ]
    text = "".join(found)
    return text if has_data else _plain(text, names)


def _expression(text: str, names: Names, local: Mapping[str, str]) -> str:
    """The code between braces of an f-string; texts in it stay, but names in them."""
    parts = re.split(r"""("[^"]*"|'[^']*')""", text)
    return "".join(
        IDENTIFIER.sub(_renaming(names, {}), part) if number % 2 else WORD.sub(_renaming(names, local), part)
        for number, part in enumerate(parts)
    )


def _renaming(names: Names, local: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda match: names.renamed(match[0], local)


def _prose(text: str, names: Names, local: Mapping[str, str]) -> str:
    quoted = QUOTED.sub(lambda match: local.get(match[0], match[0]), text)
    return _plain(IDENTIFIER.sub(_renaming(names, local), quoted), names)


def _plain(text: str, names: Names) -> str:
    """A text with other turns of phrase."""
    for phrase in names.phrases:
        text = phrase.replace(text)
    return text


def _wrapped(source: str) -> str:
    """The source with its comments, docstrings and texts in at most 120 columns."""
    if all(len(line) <= MAX_COLUMNS for line in source.splitlines()):
        return source
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        rows = range(token.start[0] - 1, token.end[0])
        if all(len(lines[row].rstrip("\n")) <= MAX_COLUMNS for row in rows):
            continue
        if token.type == tokenize.COMMENT:
            _wrap_comment(lines, token)
        elif token.string.lstrip("rRfF").startswith('"""'):
            _wrap_docstring(lines, token)
        else:
            _split_string(lines, token)
    return "".join(lines)


def _wrap_comment(lines: list[str], token: tokenize.TokenInfo) -> None:
    row, indent = token.start[0] - 1, " " * token.start[1]
    if lines[row].strip().startswith("#"):
        wrapped = textwrap.wrap(
            token.string[1:].strip(), width=MAX_COLUMNS, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        lines[row] = "\n".join(wrapped) + "\n"


def _wrap_docstring(lines: list[str], token: tokenize.TokenInfo) -> None:
    """Moves the words that stand behind the last column to the next line."""
    first, last = token.start[0] - 1, token.end[0] - 1
    indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
    row = first
    while row <= last:
        line = lines[row].rstrip("\n")
        if len(line) > MAX_COLUMNS:
            deeper = line[: len(line) - len(line.lstrip())] if row > first else indent
            cut = line.rfind(" ", 0, MAX_COLUMNS + 1)
            following = lines[row + 1] if row < last else ""
            rest = line[cut + 1 :]
            lines[row] = line[:cut].rstrip() + "\n"
            is_continued = bool(following.strip()) and following.strip() != '"""' and not _begins(following, line)
            if is_continued:
                lines[row + 1] = f"{_indent(following)}{rest} {following.lstrip()}"
            else:
                lines.insert(row + 1, f"{deeper}{rest}\n")
                last += 1
        row += 1
    closing = lines[last].rstrip("\n")
    if last > first and closing.endswith('"""') and closing.strip() != '"""' and first + 1 == last:
        lines[last] = f'{closing[:-3]}\n{indent}"""\n' if len(closing) > MAX_COLUMNS else f"{closing}\n"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _begins(line: str, before: str) -> bool:
    """Whether a line of a docstring begins an item or a section of its own."""
    stripped = line.strip()
    is_item = bool(re.match(r"[-*] |\d+\. |\w+(, \w+)*: |(Args|Returns|Raises|Yields|Source):", stripped))
    return (is_item and len(_indent(line)) <= max(len(_indent(before)), 4)) or len(_indent(line)) < len(_indent(before))


def _split_string(lines: list[str], token: tokenize.TokenInfo) -> None:
    """Makes two strings of a long one on one line."""
    row, literal = token.start[0] - 1, token.string
    if token.start[0] != token.end[0] or token.end[1] < MAX_COLUMNS or literal.endswith(('"""', "'''")):
        return
    line = lines[row]
    is_alone = not line[: token.start[1]].strip()
    if not is_alone and len(_indent(line)) + 8 + len(literal) < MAX_COLUMNS:
        return  # the formatter puts it on its own line
    prefix = literal[: len(literal) - len(literal.lstrip("rbfuRBFU"))]
    quote = literal[len(prefix)]
    room = MAX_COLUMNS - token.start[1] - 2
    cut = literal.rfind(" ", len(prefix) + 1, max(room, len(literal) // 2)) + 1
    while cut and "f" in prefix.lower() and literal[:cut].count("{") != literal[:cut].count("}"):
        cut = literal.rfind(" ", len(prefix) + 1, cut - 1) + 1
    if cut > len(prefix) + 1:
        halves = f"{literal[:cut]}{quote} {prefix}{quote}{literal[cut:]}"
        lines[row] = line[: token.start[1]] + halves + line[token.end[1] :]


if __name__ == "__main__":
    main()
