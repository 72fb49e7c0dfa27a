"""Variants of an evaluation: a name, and knobs over the base settings."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings.exceptions import SettingsError as SourceError

from jobs.mistakes import readable
from memagent_batch.errors import SettingsError
from memagent_batch.settings import Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of variants, which name folders too."""

SET_BY_SUITE = frozenset({"documents", "questions", "ask", "input", "output", "storage_options"})
"""Knobs that are the same for all variants, or the evaluation's to set."""


def read_variants(file: Path) -> dict[str, dict[str, Any]]:
    """Knobs by the name of the variant, from a YAML file: a name, and below it knobs as in a job file.

    Raises:
        SettingsError: the file can't be read, a name is no name, or a knob is not a variant's to set.
    """
    try:
        variants = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"--variants: {file} can't be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(variants, dict) or not variants:
        raise SettingsError(f"--variants: {file} holds no variants; write `name: {{policy: {{chunk_tokens: 1000}}}}`")
    for name, knobs in variants.items():
        where = f"--variants: {file}, variant {name!r}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SettingsError(f"{where}: a name has letters, digits, dots, underscores and hyphens; write another")
        if not isinstance(knobs, dict | None):
            raise SettingsError(f"{where} holds no knobs; write them below it as in a job file")
        if reserved := sorted(SET_BY_SUITE.intersection(knobs or {})):
            raise SettingsError(f"{where} sets {reserved[0]}, which is the same for all variants; take it out")
    return {name: knobs or {} for name, knobs in variants.items()}


def policy_variants(kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """One variant for each kind of policy, named after it."""
    return {kind: {"policy": {"kind": kind}} for kind in kinds}


def vary(base: Settings, knobs: Mapping[str, Any], *, name: str) -> Settings:
    """The base settings with a variant's knobs over them, group by group.

    Raises:
        SettingsError: a knob is unknown or wrong; names variant and knob.
    """
    given = base.model_dump(exclude_unset=True)
    try:
        return Settings(**_merged(given, knobs))
    except ValidationError as error:
        raise SettingsError(f"variant {name!r}: {readable(error, kind=Settings)}") from error
    except SourceError as error:
        raise SettingsError(f"variant {name!r}: settings can't be read: {error}") from error


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = base.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
