"""The vocabulary of what strikes a job, and how the command ends that is struck."""

import signal
from enum import StrEnum


class Trouble(StrEnum):
    """What strikes a run in mid-reading."""

    DRIVER_KILLED = "driver: kill -9"
    """And the command is given again; so it is after each signal to the driver."""
    DRIVER_TERMINATED = "driver: SIGTERM"
    """As `ray job stop` and a spot notice do."""
    DRIVER_INTERRUPTED = "driver: SIGINT"
    """As a person at a terminal does."""
    ACTOR_KILLED = "actor: kill -9"
    """Ray replaces it."""
    ACTOR_TERMINATED = "actor: SIGTERM"
    """As when one node is taken away."""
    ENGINE_HANGS = "engine: hangs (SIGSTOP)"
    """vLLM's process answers no more and does not end; `vllm.turn_timeout_seconds` decides."""
    SECOND_ATTEMPT = "second attempt"
    """The same command, while the first one still runs."""
    STORE_FLAKY = "store: 3 of 10 requests fail"
    """With 500, 503, 429, resets, lost answers and slow ones, until the run ends."""
    STORE_SILENT = "store: 1 of 10 requests hangs"
    """Until the client gives the request up."""
    STORE_REFUSED = "store: refuses connections for a while"
    """Nothing listens at its port."""
    STORE_OUTAGE = "store: down for a while"
    """And then it comes back."""
    STORE_DOWN = "store: stays down"
    """Until the run has given up; then the command is given again."""
    DISK_FULL = "disk: full for a while"
    """And then there is room."""
    ENDPOINT_UNAVAILABLE = "endpoint: 503 for 90 s"
    """As in a rolling restart of its servers."""
    ENDPOINT_REFUSED = "endpoint: refuses connections for 200 s"
    """Nothing listens at its port."""
    ENDPOINT_QUOTA = "endpoint: 429 for 10 min"
    """Its quota is used up, and comes back."""
    KEY_EXPIRED = "endpoint: the key expires"
    """Every request is answered 401; then the command is given again, with a key that is good."""
    TEXTS_SILENT = "texts: their store times out"
    """From the moment in which the plan is made until the command ends; then the command is given again."""
    NODE_KILLED = "worker node: kill -9"
    """A node of a cluster, with all its processes; the others go on."""
    HEAD_KILLED = "head node: kill -9"
    """With the driver; the same command is given to a new cluster."""


ON_STORE = (Trouble.STORE_FLAKY, Trouble.STORE_SILENT, Trouble.STORE_REFUSED, Trouble.STORE_OUTAGE, Trouble.STORE_DOWN)
"""Where the output is in an object store."""
ON_ENDPOINT = (Trouble.ENDPOINT_UNAVAILABLE, Trouble.ENDPOINT_REFUSED, Trouble.ENDPOINT_QUOTA, Trouble.KEY_EXPIRED)
"""Where an endpoint reads the documents."""
ENDPOINT_OUTAGE_SECONDS = {
    Trouble.ENDPOINT_UNAVAILABLE: 90.0,
    Trouble.ENDPOINT_REFUSED: 200.0,
    Trouble.ENDPOINT_QUOTA: 600.0,
}
"""How long the endpoint is away; longer than a request is sent again by itself."""
ON_CLUSTER = (Trouble.NODE_KILLED, Trouble.HEAD_KILLED)
"""Where Ray's nodes are started apart from the job."""
EXIT_CODES = {
    Trouble.DRIVER_KILLED: -9,
    Trouble.DRIVER_TERMINATED: 143,
    Trouble.DRIVER_INTERRUPTED: 130,
    Trouble.SECOND_ATTEMPT: 3,
    Trouble.STORE_DOWN: 1,
    Trouble.KEY_EXPIRED: 2,
    Trouble.TEXTS_SILENT: 1,
}
"""How the command ends that is struck, where it ends."""
SIGNALS = {
    Trouble.DRIVER_TERMINATED: signal.SIGTERM,
    Trouble.DRIVER_INTERRUPTED: signal.SIGINT,
    Trouble.DRIVER_KILLED: signal.SIGKILL,
    Trouble.ACTOR_TERMINATED: signal.SIGTERM,
    Trouble.ACTOR_KILLED: signal.SIGKILL,
}
