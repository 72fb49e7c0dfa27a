"""Comes before the test modules, whose imports need it."""

import typing

import typing_extensions

# SkyRL 0.3.0 gives pydantic a typing.TypedDict, which pydantic refuses before Python 3.12: `import skyrl.train` fails.
setattr(typing, "TypedDict", typing_extensions.TypedDict)  # noqa: B010  # not an assignment: types are for checkers
