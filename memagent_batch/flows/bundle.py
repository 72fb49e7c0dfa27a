"""The record of an output as one archive for someone outside."""

from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.runs.history.history import LATEST, find_run
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.verification.bundle import Packed, write_bundle


def bundle(output: Location, target: Location, *, with_tables: bool) -> Packed:
    """Packs manifests, cards, labels, samples and estimates, and the tables where they are asked for.

    Raises:
        OutputError: no run has finished, or a file of its record is gone.
        StorageError: a file can't be read or written.
    """
    with output_errors(output.uri):
        require_manifest(output)
    return write_bundle(find_run(output, LATEST), target, with_tables=with_tables)
