"""The question list of a run, kept beside its log: actors and tasks on any node find it there after any restart."""

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.storage.location import Location
from memagent_batch.storage.turn_log import parquet_bytes

ASKED_FOLDER = "log/questions"


def write_asked(output: Location, questions: pa.Table, *, run_id: str) -> None:
    """Keeps the question list (`Plan.hashed_questions`) of a run."""
    (output / f"{ASKED_FOLDER}/{run_id}.parquet").write_bytes(parquet_bytes(questions))


def read_asked(output: Location, *, run_id: str) -> pa.Table:
    """The question list of a run; `readings` of its plan name rows of it."""
    place = output / f"{ASKED_FOLDER}/{run_id}.parquet"
    return pq.read_table(place.path, filesystem=place.fs)
