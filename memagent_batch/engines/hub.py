"""The model hub: whether it answers. Its own client would try a name for more than a minute before it gives up."""

import time
from functools import lru_cache

TRIES = 3
"""Requests before the hub counts as away."""
PAUSE_SECONDS = 1.0
"""Pause between them."""
ANSWER_SECONDS = 5.0
"""Longest wait for each."""


@lru_cache(maxsize=1)
def hub_failure() -> str | None:
    """Why the hub can't be reached, checked once in a process; None where it answers, with any status.

    Asked with the hub's own client, which knows the proxies, certificates and offline mode that the user has set.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    failure = ""
    for attempt in range(TRIES):
        time.sleep(PAUSE_SECONDS if attempt else 0.0)
        try:
            get_session().head(constants.ENDPOINT, timeout=ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 - the boundary to the hub's client, whose errors share no base
            failure = f"{constants.ENDPOINT}: {' '.join(str(error).split()) or type(error).__name__}"
        else:
            return None
    return failure
