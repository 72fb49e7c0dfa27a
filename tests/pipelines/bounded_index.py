"""Indexes and fetches all documents of a folder, and tells how much memory that took; for tests."""

import json
import re
import sys
from pathlib import Path

from memagent_batch.settings import InputSettings
from memagent_batch.storage.documents import fetch_texts, index_shard
from memagent_batch.storage.location import Location
from memagent_batch.storage.shards import list_shards

if __name__ == "__main__":
    knobs = InputSettings()
    lengths = [
        len(fetched.text or "")
        for shard in list_shards(Location(uri=sys.argv[1]), settings=knobs)
        for index in index_shard(shard, settings=knobs, storage_options={})
        for fetched in fetch_texts(index, settings=knobs, storage_options={})
    ]
    # Not ru_maxrss, which counts the process that started this one, too.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert peak is not None
    print(json.dumps({"texts": len(lengths), "lengths": sorted(set(lengths)), "peak_mib": int(peak[1]) // 1024}))
