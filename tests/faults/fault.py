"""The faults that strike a job, and the exit code of the command that each strikes."""

import signal
from enum import StrEnum

from tests.faults.killed_job import Role


class Fault(StrEnum):
    """What strikes a run in mid-reading. The engine is simulated unless the name says otherwise."""

    DRIVER_KILLED = "driver: kill -9"
    """The same command is given again; so it is after every signal to the driver."""
    DRIVER_TERMINATED = "driver: SIGTERM"
    """As `ray job stop` and a spot notice do."""
    DRIVER_INTERRUPTED = "driver: SIGINT"
    """As a person at a terminal does."""
    ACTOR_KILLED = "actor: kill -9"
    ACTOR_TERMINATED = "actor: SIGTERM"
    """As when one node is removed."""
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
    STORE_DOWN = "store: stays down"
    """Until the run has given up; then the command is given again."""
    DISK_FULL = "disk: full for a while"
    """There is room again later."""
    ENDPOINT_UNAVAILABLE = "endpoint: 503 for 90 s"
    """As in a rolling restart of its servers."""
    ENDPOINT_REFUSED = "endpoint: refuses connections for 200 s"
    """Nothing listens at its port."""
    ENDPOINT_QUOTA = "endpoint: 429 for 10 min"
    """Its quota is used up, and comes back."""
    KEY_EXPIRED = "endpoint: the key expires"
    """Every request is answered 401; then the command is given again, with a valid key."""
    TEXTS_SILENT = "texts: their store times out"
    """From the moment in which the plan is made until the command ends; then the command is given again."""
    NODE_KILLED = "worker node: kill -9"
    """A node of a cluster, with all its processes; the others go on."""
    HEAD_KILLED = "head node: kill -9"
    """With the driver; the same command is given to a new cluster."""
    VLLM_DRIVER_KILLED = "vLLM, driver: kill -9"
    """At five moments of one run with real vLLM; the command is given again after each."""
    VLLM_ACTOR_KILLED = "vLLM, actor: kill -9"
    """At five moments; Ray replaces actor and engine."""
    VLLM_ENGINE_KILLED = "vLLM, engine: kill -9"
    """At five moments; the actor ends, and Ray replaces both."""


ON_STORE = (Fault.STORE_FLAKY, Fault.STORE_SILENT, Fault.STORE_REFUSED, Fault.STORE_OUTAGE, Fault.STORE_DOWN)
"""The output is in an object store."""
ON_ENDPOINT = (Fault.ENDPOINT_UNAVAILABLE, Fault.ENDPOINT_REFUSED, Fault.ENDPOINT_QUOTA, Fault.KEY_EXPIRED)
"""An endpoint reads the documents."""
ON_CLUSTER = (Fault.NODE_KILLED, Fault.HEAD_KILLED)
"""Ray's nodes are started apart from the job."""
ON_VLLM = {
    Fault.VLLM_DRIVER_KILLED: Role.DRIVER,
    Fault.VLLM_ACTOR_KILLED: Role.ACTOR,
    Fault.VLLM_ENGINE_KILLED: Role.ENGINE,
}
"""Kills of a run with real vLLM, compared with a run that was left alone, and the process that each kills."""
ENDPOINT_OUTAGE_SECONDS = {
    Fault.ENDPOINT_UNAVAILABLE: 90.0,
    Fault.ENDPOINT_REFUSED: 200.0,
    Fault.ENDPOINT_QUOTA: 600.0,
}
"""How long the endpoint is away; longer than the time for which a request is retried by itself."""
EXIT_CODES = {
    Fault.DRIVER_KILLED: -9,
    Fault.DRIVER_TERMINATED: 143,
    Fault.DRIVER_INTERRUPTED: 130,
    Fault.SECOND_ATTEMPT: 3,
    Fault.STORE_DOWN: 1,
    Fault.KEY_EXPIRED: 2,
    Fault.TEXTS_SILENT: 1,
}
"""Exit code of the command that the fault strikes, where it ends."""
SIGNALS = {
    Fault.DRIVER_TERMINATED: signal.SIGTERM,
    Fault.DRIVER_INTERRUPTED: signal.SIGINT,
    Fault.DRIVER_KILLED: signal.SIGKILL,
    Fault.ACTOR_TERMINATED: signal.SIGTERM,
    Fault.ACTOR_KILLED: signal.SIGKILL,
}
