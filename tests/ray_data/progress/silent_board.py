"""A ProgressBoard that nobody looks at; for readers without Ray."""

import asyncio
from typing import Any

from memagent_batch.ray_data.progress.board import Report


class SilentBoard:
    """Has the methods of the actor's handle that a reader calls."""

    class put:  # noqa: N801 - stands for an actor's method
        @staticmethod
        def remote(report: Report) -> asyncio.Future[None]:
            """Takes a report."""
            return done()

    class has_turns:  # noqa: N801
        @staticmethod
        def remote() -> asyncio.Future[Any]:
            """Nothing was read yet."""
            return done(False)


def done(result: Any = None) -> asyncio.Future[Any]:
    """What an actor's method returns when it has run."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
