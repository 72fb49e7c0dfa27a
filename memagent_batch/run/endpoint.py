"""What the server of an endpoint says of itself, and what of that has changed since an earlier run of the output."""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from pydantic import JsonValue

from memagent_batch.config.agent import AgentConfig
from memagent_batch.data.store.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import printable
from memagent_batch.run.history import read_rows
from memagent_batch.run.wiring import make_engine

log = logging.getLogger(__name__)

Endpoint = Mapping[str, JsonValue]
"""What a server says of itself and of the model by name, such as `version`; see `Engine.describe_server`."""


def describe_endpoint(agent: AgentConfig) -> Endpoint:
    """Asks the server of an agent; empty where there is none, and where it does not answer."""
    engine = make_engine(agent)
    with ThreadPoolExecutor(1) as thread:  # the event loop of a notebook runs in this one
        return thread.submit(lambda: asyncio.run(engine.describe_server())).result()


def read_endpoints(output: Location) -> Iterator[tuple[str, str, Endpoint]]:
    """Id, fingerprint and endpoint of each run of an output that knows its endpoint, the last run first."""
    rows = read_rows(output, columns=["run_id", "fingerprint", "record"])
    for row in sorted(rows, key=lambda row: row["run_id"], reverse=True):
        if endpoint := json.loads(row["record"]).get("endpoint"):
            yield row["run_id"], row["fingerprint"], endpoint


def changed_fields(before: Endpoint, now: Endpoint) -> list[str]:
    """The names under which both say something, and not the same."""
    return [name for name in before if name in now and before[name] != now[name]]


def warn_of_change(endpoint: Endpoint, output: Location, fingerprint: str, *, asked: int, pending: int) -> None:
    """Logs what of an endpoint has changed since the last run of the same agent, and what is read again.

    Args:
        endpoint: What the server says now.
        output: The output.
        fingerprint: The agent.
        asked: Readings that the run is asked for.
        pending: Those of them that it has to do.
    """
    runs = read_endpoints(output) if endpoint else iter(())
    run_id, before = next(((run_id, each) for run_id, agent, each in runs if agent == fingerprint), ("", endpoint))
    names = changed_fields(before, endpoint)
    if not names:
        return
    changes = ", ".join(
        f"{name} was {printable(str(before[name]))}, now {printable(str(endpoint[name]))}" for name in names
    )
    log.warning(
        f"the endpoint is not as it was in run {run_id}: {changes}. Of {quantity(asked, 'reading')} this run reads "
        f"{pending}; the other answers, and the turns that the log has of these, are those of the earlier server and "
        "are not read again. If its weights are others, name them in weights_version: then all is read again",
        extra={"event": EventKind.ENDPOINT_CHANGED, "names": names, "run_id_before": run_id},
    )
