"""Columns of tables: each with its meaning, and its unit where it has one, in the field's metadata."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")


def column(name: str, kind: pa.DataType, meaning: str, *, unit: str = "", nullable: bool = False) -> pa.Field:
    """A documented column; `unit` is empty where the value has none."""
    return pa.field(name, kind, nullable=nullable, metadata={"description": meaning, "unit": unit})
