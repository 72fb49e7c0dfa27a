"""How the tables of a run follow from its log: `runs/RUN_ID/projection.json`, so that anyone can project them again.

The model and its tokeniser are not needed for that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, get_args, get_type_hints

from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables.parts import rules

PROJECTION_FILE = "projection.json"
"""Name of the file in the record of a run."""
_PLACES = frozenset({"output", "run_id", "documents", "input"})
"""Fields that say where the output and the documents are; these may move."""


def projection_record(projection: Projection) -> dict[str, Any]:
    """What `projection.json` says: the hash of the rules, and their settings."""
    return {"rules": _rules_hash(), "projection": _plain(projection)}


def restored_projection(record: Mapping[str, Any], **places: Any) -> Projection | None:
    """The projection; None where another version of the rules made the tables.

    Args:
        record: What `projection_record` made.
        places: Where output and documents are now: the fields that the record leaves out.
    """
    if record.get("rules") != _rules_hash():
        return None
    try:
        projection: Projection = _made(Projection, record["projection"], places)
    except (AttributeError, KeyError, TypeError, ValueError):  # it has other fields than here, or other values
        return None
    return projection


def _rules_hash() -> str:
    return sha256(json.dumps(rules()).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _made(kind: Any, values: Mapping[str, Any], places: Mapping[str, Any]) -> Any:
    """A dataclass of its fields, those of `places` among them."""
    hints = get_type_hints(kind)
    own = {each.name: places[each.name] for each in fields(kind) if each.name in places}
    return kind(**{name: _value(hints[name], value, places) for name, value in values.items()}, **own)


def _value(hint: Any, value: Any, places: Mapping[str, Any]) -> Any:
    """A value of the field's type: an enum, a dataclass, several of one type, or what JSON holds."""
    if isinstance(value, list):
        (kind, *_) = get_args(hint)
        return [_value(kind, each, places) for each in value]
    for kind in (hint, *get_args(hint)) if value is not None else ():
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return kind(value)
        if is_dataclass(kind):
            return _made(kind, value, places)
    return value
