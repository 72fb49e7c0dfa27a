from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, NotRequired, TypedDict

import pyarrow as pa

from memagent_batch.data.store.columns import TIMESTAMP, Column, arrow_schema


class Place(TypedDict):
    start: int
    chunk: Annotated[int | None, pa.int32()]


class Base(TypedDict):
    name: Annotated[str, Column("what it is called")]


class Row(Base):
    seconds: Annotated[float | None, Column("how long", "seconds")]
    at: datetime
    places: list[Place] | None
    tokens: Annotated[Sequence[int], pa.list_(pa.int32())]
    tags: NotRequired[list[str]]
    only: Base | None


def test_arrow_schema_has_the_fields_of_a_row_in_order_with_types_nulls_meaning_and_unit() -> None:
    name = pa.field("name", pa.string(), nullable=False, metadata={"description": "what it is called", "unit": ""})
    place = pa.struct([pa.field("start", pa.int64(), nullable=False), pa.field("chunk", pa.int32())])
    expected = pa.schema(
        [
            name,
            pa.field("seconds", pa.float64(), metadata={"description": "how long", "unit": "seconds"}),
            pa.field("at", TIMESTAMP, nullable=False),
            pa.field("places", pa.list_(place)),
            pa.field("tokens", pa.list_(pa.int32()), nullable=False),
            pa.field("tags", pa.list_(pa.string()), nullable=False),
            pa.field("only", pa.struct([name])),
        ]
    )
    assert arrow_schema(Row).equals(expected, check_metadata=True)
