"""Places and arguments of fsspec's file systems as deltalake, which reaches stores by itself, takes them."""

import re
from collections.abc import Mapping
from typing import Any

from memagent_batch.config.storage import Options
from memagent_batch.data.store.location import S3_RETRIES, Location
from memagent_batch.errors import SettingsError

S3_OPTIONS: Mapping[str, str] = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}
"""Arguments of fsspec's S3 and their names in deltalake."""
TIMEOUTS = {"connect_timeout": "connect_timeout", "read_timeout": "timeout"}
"""Settings of botocore, in seconds, and their names in deltalake."""


def deltalake_uri(place: Location) -> str:
    """Returns the place of a table as deltalake takes it.

    Raises:
        SettingsError: deltalake would take it for another place: it decodes `%41`, though not everywhere, so that no
            quoting helps, and in a store it ends a path at `#` and `?`.
    """
    misread = re.search("%[0-9A-Fa-f]{2}" if place.is_local else "%[0-9A-Fa-f]{2}|[#?]", place.path)
    if misread:
        raise SettingsError(
            f"{place}: a Delta table can't lie in a folder whose name has {misread[0]!r}, as the package deltalake "
            "takes it for another folder; choose or rename the folder"
        )
    return place.path if place.is_local else str(place.fs.unstrip_protocol(place.path))


def deltalake_options(options: Options) -> dict[str, str] | None:
    """Returns arguments of an fsspec file system in the words of deltalake; other texts pass as they are.

    Of `config_kwargs`, the settings of botocore, time-outs and the number of tries are taken, so that a store that
    hangs is given up as soon by deltalake as by s3fs.
    """
    given = {**options}
    given |= given.pop("client_kwargs", {})
    config = given.pop("config_kwargs", {})
    named = {S3_OPTIONS.get(name, name): str(value) for name, value in given.items() if isinstance(value, str)}
    if str(named.get("AWS_ENDPOINT_URL", "")).startswith("http://"):
        named["AWS_ALLOW_HTTP"] = "true"
    if given.get("anon"):
        named["AWS_SKIP_SIGNATURE"] = "true"
    named |= {name: f"{config[setting]}s" for setting, name in TIMEOUTS.items() if setting in config}
    if "retries" in config:
        named["max_retries"] = str(_num_retries(config["retries"]))
    return named or None


def _num_retries(retries: Mapping[str, Any]) -> int:
    """Tries of a request after the first one, as botocore counts them."""
    if "total_max_attempts" in retries:
        return max(int(retries["total_max_attempts"]) - 1, 0)
    return int(retries.get("max_attempts", S3_RETRIES["max_attempts"]))
