import numpy as np
import pyarrow as pa

from memagent_batch.ray_data.tokenise import CALL, TOKENISED
from memagent_batch.reading.documents import planned_documents

NUM_TOKENS = 1_000_000


def test_planned_documents_leave_the_tokens_where_they_lie() -> None:
    token_ids = pa.array(np.arange(NUM_TOKENS, dtype=np.int32))
    row = {
        "document_id": ["d"],
        "token_ids": pa.LargeListArray.from_arrays(pa.array([0, NUM_TOKENS], pa.int64()), token_ids),
        "spans": [[{"token_start": 5, "token_end": 8, "char_start": 0, "char_end": 9, "index": 0}]],
    }
    columns = [pa.array([None], field.type) for field in TOKENISED]
    for place, field in enumerate(TOKENISED):
        if field.name in row:
            columns[place] = row[field.name] if field.name == "token_ids" else pa.array(row[field.name], field.type)
        elif pa.types.is_list(field.type):
            columns[place] = pa.array([[]], field.type)
    documents = pa.StructArray.from_arrays(columns, fields=list(TOKENISED))
    call = pa.table({"documents": pa.LargeListArray.from_arrays(pa.array([0, 1], pa.int64()), documents)}, CALL)
    before = pa.total_allocated_bytes()
    (document,) = planned_documents(call)
    assert list(document.chunks[0].token_ids) == [5, 6, 7]
    assert pa.total_allocated_bytes() - before < token_ids.nbytes / 2
