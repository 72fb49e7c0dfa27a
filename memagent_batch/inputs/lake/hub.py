"""Pins a data set of the Hugging Face hub to a commit, so that a branch that moves on changes nothing in a run."""

from dataclasses import dataclass

from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location

_PROTOCOL = "hf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A place of the hub at a commit."""

    place: Location
    """The same place, with the commit in its path."""
    commit: str
    """The commit."""


def pin(documents: Location) -> Pinned | None:
    """The commit that the branch or tag of a place stands for now; None for a place elsewhere.

    Raises:
        InputError: the hub can't be reached, or has no such data set or revision.
    """
    if not documents.uri.startswith(f"{_PROTOCOL}://"):
        return None
    with input_errors(documents.uri):
        found = documents.fs.resolve_path(documents.path)
        if not hasattr(found, "repo_id"):
            return None  # a bucket has no commits
        info = documents.fs._api.repo_info(found.repo_id, revision=found.revision, repo_type=found.repo_type)
    kind = "" if found.repo_type == "model" else f"{found.repo_type}s/"
    path = f"{kind}{found.repo_id}@{info.sha}/{found.path_in_repo}".rstrip("/")
    return Pinned(
        place=Location(uri=f"{_PROTOCOL}://{path}", storage_options=documents.storage_options), commit=info.sha
    )
