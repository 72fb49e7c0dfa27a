"""Something that many ask for and one makes, on one event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Awaits something once, when it is first asked for, and gives every asker the same."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Takes what makes it; nothing runs yet."""
        self._make = make
        self._made: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """The thing, or the exception that its making raised."""
        if self._made is None:
            self._made = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._made)
