"""What S3 needs beside fsspec: more tries, and the answers to conditional writes."""

from http import HTTPStatus

S3_RETRIES = {"mode": "standard", "max_attempts": 8}
"""Tries of one request to S3, on 5xx, throttling and broken connections: up to about a minute with their pauses. What
lasts longer is an outage, which the turn log waits out."""

CONFLICTS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
"""What S3 answers to a conditional PUT when another object is there, or in the making."""


def http_status(error: OSError) -> int | None:
    """What S3 answered, where s3fs made an OSError of it."""
    answer = getattr(error.__cause__, "response", None) or {}
    status: int | None = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def retry_throttled() -> None:
    """Has s3fs try again what botocore does not: an answer 429 without a body that names an error."""
    from botocore.exceptions import ClientError
    from s3fs.core import set_custom_error_handler

    def is_throttled(error: Exception) -> bool:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
        return bool(status == 429)

    set_custom_error_handler(is_throttled)
