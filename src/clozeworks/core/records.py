"""A class of many fields as a few records of those that change together, read as if it had them itself."""

import dataclasses
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class RecordField(Generic[T]):
    """An attribute that stands in a record of its owner: `targets = RecordField[Tensor]("prediction")`.

    Records are frozen and may be shared: where the owner is not frozen, setting the attribute gives it a new record.
    """

    __slots__ = ("name", "record")

    def __init__(self, record: str):
        self.record = record
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "RecordField[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else getattr(getattr(instance, self.record), self.name)

    def __set__(self, instance: object, value: T) -> None:
        changed = dataclasses.replace(getattr(instance, self.record), **{self.name: value})
        setattr(instance, self.record, changed)


def replace_fields(owner: Any, changes: dict[str, Any]) -> Any:
    """`dataclasses.replace` for a class with record fields: each change goes to the record that holds it."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        place = vars(type(owner)).get(name)
        if isinstance(place, RecordField):
            inner.setdefault(place.record, {})[name] = value
        else:
            own[name] = value
    for record, values in inner.items():
        own[record] = dataclasses.replace(own.get(record, getattr(owner, record)), **values)
    return dataclasses.replace(owner, **own)
