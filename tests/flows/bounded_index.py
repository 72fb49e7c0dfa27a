"""Indexes and fetches all documents of a folder, and tells how much memory that took; for tests."""

import json
import sys

from memagent_batch.config.sources import InputConfig
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.shards import list_shards
from memagent_batch.inputs.texts import fetch_texts
from tests.faults.peak_memory import peak_mib

if __name__ == "__main__":
    knobs, location = InputConfig(), Location(uri=sys.argv[1])
    lengths = [
        len(fetched.text or "")
        for shard in list_shards(location, settings=knobs)
        for index in index_shard(shard, settings=knobs, storage_options={})
        for fetched in fetch_texts(index, documents=location, settings=knobs)
    ]
    print(json.dumps({"texts": len(lengths), "lengths": sorted(set(lengths)), "peak_mib": round(peak_mib())}))
