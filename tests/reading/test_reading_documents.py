from itertools import islice

import numpy as np
import pyarrow as pa

from memagent_batch.run.executors.tokenise import CALL, TOKENISED
from memagent_batch.run.reading.documents import planned_documents

NUM_TOKENS = 1_000_000


def test_planned_documents_leave_the_tokens_where_they_lie() -> None:
    token_ids = pa.array(np.arange(NUM_TOKENS, dtype=np.int32))
    token_chars, offsets = pa.array(np.arange(NUM_TOKENS) * 2), pa.array([0, NUM_TOKENS], pa.int64())
    row = {
        "document_id": ["d"],
        "token_ids": pa.LargeListArray.from_arrays(offsets, token_ids),
        "token_chars": pa.LargeListArray.from_arrays(offsets, token_chars),
        "num_chars": [2 * NUM_TOKENS],
    }
    columns = [pa.array([None], field.type) for field in TOKENISED]
    for place, field in enumerate(TOKENISED):
        if field.name in row:
            columns[place] = (
                row[field.name] if field.name in ("token_ids", "token_chars") else pa.array(row[field.name], field.type)
            )
        elif pa.types.is_list(field.type):
            columns[place] = pa.array([[]], field.type)
    documents = pa.StructArray.from_arrays(columns, fields=list(TOKENISED))
    call = pa.table({"documents": pa.LargeListArray.from_arrays(pa.array([0, 1], pa.int64()), documents)}, CALL)
    before = pa.total_allocated_bytes()
    (document,) = planned_documents(call)
    _, chunk = islice(document.document.chunks(5), 2)
    assert chunk.token_ids == [5, 6, 7, 8, 9]
    assert (chunk.span.char_start, chunk.span.char_end) == (10, 20)
    assert pa.total_allocated_bytes() - before < token_ids.nbytes / 2
