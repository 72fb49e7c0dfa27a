"""Reads the YAML files that options name: job files and variants."""

from pathlib import Path
from typing import Any

import yaml

from memagent_batch.errors import SettingsError


def read_yaml(file: Path, *, option: str) -> Any:
    """What the file holds.

    Raises:
        SettingsError: it is not there or no YAML; names the option, and the line but not what it says.
    """
    if file.is_dir():
        raise SettingsError(f"{option}: {file} is a folder; name a YAML file in it")
    if not file.exists():
        raise SettingsError(f"{option}: {file} is not there")
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {_without_content(error)}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {' '.join(str(error).split())}") from error


def _without_content(error: yaml.MarkedYAMLError) -> str:
    """What is wrong and where, without the line itself, which may hold a secret."""
    problem = (error.problem or "no YAML").partition("'")[0].strip()
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem
