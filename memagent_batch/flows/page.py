"""A finished run as pages that people read: sizes first, then tables in and a site out. Streams; no Ray, no engine."""

import logging

from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.pages.site import WrittenSite, write_site
from memagent_batch.pages.site_files import claim_site
from memagent_batch.pages.size import estimate_size
from memagent_batch.runs.manifest import require_manifest

log = logging.getLogger(__name__)

LARGE_BYTES = 1_000_000_000
"""Size from which a site is written only where the user says so."""


def page(output: Location, target: Location, *, context_chars: int | None, is_large_allowed: bool) -> WrittenSite:
    """Writes the site of the last finished run of an output; says before how large it becomes.

    Args:
        output: The run's location.
        target: The folder of the site.
        context_chars: Characters of the document on either side of evidence; None for no text.
        is_large_allowed: Whether it may become larger than `LARGE_BYTES`.

    Raises:
        OutputError: no run has finished, the target holds other files, or the site would be too large.
        InputError: texts are to be shown, and the documents can't be reached.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    claim_site(target)
    estimate = estimate_size(output, manifest, context_chars=context_chars)
    megabytes = f"about {max(1, round(estimate.num_bytes / 1_000_000)):,} MB"
    documents = quantity(estimate.num_documents, "document")
    log.info(f"the pages of {documents} take {megabytes}")
    if estimate.num_bytes > LARGE_BYTES and not is_large_allowed:
        raise OutputError(
            f"the pages of {documents} would take {megabytes}, more than "
            f"{LARGE_BYTES // 1_000_000:,} MB; say --yes to write them, or --without-text for smaller ones"
        )
    return write_site(output, target, manifest=manifest, context_chars=context_chars)
