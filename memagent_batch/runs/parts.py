"""Files of the tables that a run takes over from the run before, because it would write the same rows.

A row of `answers` or `memories` follows from the plan, the log files that hold its reading, and a few settings. Their
hash is the key of a part; a run that plans a part of a key that the manifest has names the files that are there.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from typing import Any

import pyarrow as pa

from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.question_list import asked_in
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.runs.schemas import ANSWERS, MEMORIES
from memagent_batch.runs.tables import Projection

PARTS = "parts"
"""Where a manifest keeps what its parts reported."""

KEY = "key"
"""Where a report names what its part was made of; null where the log did not hold all of it."""

PROJECTION = 1
"""Raised with every change of the code that changes a row of `answers` or `memories`: parts are then written again."""

_PLAN_COLUMNS = ("document_id", "document_hash", "error", "error_type", "readings", "outcome_files", "turn_files")
_SETTINGS = sorted({field.name for field in fields(Projection)} - {"output", "run_id"})
_QUESTION_COLUMNS = ("question_id", "document_id", "question", "question_hash", "list_hash")


def part_key(part: pa.Table, *, projection: Projection) -> str:
    """Hash of all that decides the rows of a part of the plan (a table of `Plan.parts`), hex."""
    carried = sorted(name for name in part.schema.names if name.startswith(CARRY_PREFIX))
    made_of = {
        "code": [PROJECTION, str(ANSWERS), str(MEMORIES)],
        "settings": {name: getattr(projection, name) for name in _SETTINGS},
        "documents": part.select([*_PLAN_COLUMNS, *carried]).to_pylist(),
        "questions": {row: _described(question) for row, question in asked_in(part).items()},
    }
    return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def _described(question: Mapping[str, Any]) -> dict[str, Any]:
    return {name: question[name] for name in _QUESTION_COLUMNS if name in question}


def kept_parts(output: Location, *, columns: set[str]) -> dict[str, Mapping[str, Any]]:
    """Reports of the parts that the manifest names, by key; of those that say `columns`."""
    manifest = read_json(output / MANIFEST_FILE) or {}
    return {part[KEY]: part for part in manifest.get(PARTS, ()) if part.get(KEY) and columns <= part.keys()}
