"""What the counts of a closed run mean for the command that ran it: its last line and its exit code."""

from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, sum_up
from memagent_batch.errors import NotReadError, TooManyFailedError
from memagent_batch.runs.manifest import Manifest


def require_success(manifest: Manifest, *, max_failed_share: float) -> None:
    """Returns where enough was answered and nothing is left to read.

    Args:
        manifest: of a run whose tables are written.
        max_failed_share: largest share of failed readings, from 0 to 1.

    Raises:
        TooManyFailedError: more failed, or all that were asked.
        NotReadError: some could not be read now.
    """
    asked, failed = manifest["counts"]["asked"], manifest["counts"]["failed"]
    if failed > max_failed_share * asked or failed == asked > 0:
        allowed = f", max_failed_share is {max_failed_share:g}" if failed < asked else ""
        raise TooManyFailedError(
            f"{failed} of {asked} readings failed{allowed} ({_reasons_of(manifest, Status.FAILED)}); their rows are in "
            "`answers`: mend the cause, and run the same command with --retry-failed"
        )
    require_read(manifest)


def require_read(manifest: Manifest) -> None:
    """Returns where nothing is left to read.

    Raises:
        NotReadError: some readings could not be read now.
    """
    num_not_read = manifest["counts"]["not_read"]
    if num_not_read:
        raise NotReadError(
            f"{num_not_read} of {manifest['counts']['asked']} readings were not read "
            f"({_reasons_of(manifest, Status.NOT_READ)}); the same command reads them"
        )


def _reasons_of(manifest: Manifest, status: Status) -> str:
    return sum_up(Reason(**reason) for reason in manifest["reasons"][status.value])
