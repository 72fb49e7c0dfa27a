"""A ProgressBoard that nobody looks at, of a driver that never leaves; for readers without Ray."""

import asyncio
from typing import Any


class SilentBoard:
    """Has the methods of the actor's handle that a reader calls."""

    class add:  # noqa: N801 - stands for an actor's method
        @staticmethod
        def remote(counts: dict[str, int]) -> asyncio.Future[None]:
            """Takes the counts."""
            return done()

    class tell:  # noqa: N801
        @staticmethod
        def remote(events: list[Any]) -> asyncio.Future[None]:
            """Takes the events."""
            return done()

    class leave:  # noqa: N801
        @staticmethod
        def remote() -> asyncio.Future[None]:
            """Nobody else has anything to flush."""
            return done()

    class is_leaving:  # noqa: N801
        @staticmethod
        def remote(writer_id: str) -> asyncio.Future[Any]:
            """Never answers."""
            return asyncio.get_running_loop().create_future()


def done() -> asyncio.Future[None]:
    """What an actor's method returns when it has run."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
