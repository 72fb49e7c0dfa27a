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

    class sums:  # noqa: N801
        @staticmethod
        def remote() -> asyncio.Future[Any]:
            """Nothing was read yet."""
            return done({"turns": 0})

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


def done(result: Any = None) -> asyncio.Future[Any]:
    """What an actor's method returns when it has run."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
