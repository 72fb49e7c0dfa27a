"""What all settings are made of: groups of settings, and texts and numbers with bounds.

Plain values; no field can be set. Built in Python they hold what the call says and the defaults, and never look at the
environment; `cli/` alone reads job files, `MEMAGENT_...` variables and options, and makes these values of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from memagent_batch.masking import mask_url

Count = Annotated[int, Field(ge=1)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0)]


def as_tuple(value: Any) -> Any:
    """One text or group as the only one of several."""
    return (value,) if isinstance(value, str | dict) else value


Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
TextOrTexts = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]
"""One text or several."""


class Section(BaseModel):
    """A group of settings; unknown ones are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """The settings for `repr` and `str`; URLs without secrets."""
        return [(name, _masked_value(value)) for name, value in super().__repr_args__()]


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def fields_of(kind: type[BaseModel], *, below: str = "") -> Iterator[tuple[str, Any, FieldInfo]]:
    """All settings, group by group: name with that of its group, type without None, and the field."""
    for field, info in kind.model_fields.items():
        plain, name = _without_none(info.annotation), below + (info.alias or field)
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from fields_of(plain, below=f"{name}.")
        else:
            yield name, plain, info


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others over them, group by group."""
    result = dict(base)
    for name, value in over.items():
        below = base.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _masked_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_masked_value, value))
    return mask_url(value) if type(value) is str else value


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(kinds) != 1:
        return annotation
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]
