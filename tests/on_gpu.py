"""Lets a test that has its tensors on the processor call a GPU's kernels."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from torch import Tensor


class OnGpu:
    """An implementation of an op whose functions take and return tensors of the processor.

    What goes in is copied to the device and back, for some ops write into their arguments; what comes out is copied.
    """

    def __init__(self, implementation: ModuleType, device: str = "cuda") -> None:
        self._implementation = implementation
        self._device = device

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._implementation, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            copies: dict[int, tuple[Tensor, Tensor]] = {}

            def there(tensor: Tensor) -> Tensor:
                return copies.setdefault(id(tensor), (tensor, tensor.to(self._device, copy=True)))[1]

            result = function(*(_map(value, there) for value in args),
                              **{key: _map(value, there) for key, value in kwargs.items()})
            for original, copy in copies.values():
                original.copy_(copy)
            back = {id(copy): original for original, copy in copies.values()}
            return _map(result, lambda tensor: back[id(tensor)] if id(tensor) in back else tensor.cpu())

        return call


def moved(value: Any, device: str) -> Any:
    """A copy of a value whose tensors are on the device."""
    return _map(value, lambda tensor: tensor.to(device))


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with each tensor in it changed: in tuples, dictionaries and dataclasses, of which a copy is made."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map(part, change) for part in value)
    if isinstance(value, dict):
        return {key: _map(part, change) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        made = object.__new__(type(value))
        for field in fields(value):
            object.__setattr__(made, field.name, _map(getattr(value, field.name, None), change))
        return made
    return value
