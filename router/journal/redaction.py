"""The parts of texts that an operator wants no log to have: they are replaced."""

import re
from collections.abc import Sequence
from typing import Any

MARK = "[redacted]"


class Redaction:
    """Replaces all that one of the patterns matches in a text."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def of(self, value: Any) -> Any:
        """Returns a value as JSON has it, with its texts redacted, those of keys, too. It is equal to the given one if
        nothing was replaced."""
        match value:
            case str():
                for pattern in self._patterns:
                    value = pattern.sub(MARK, value)
                return value
            case dict():
                return {self.of(key): self.of(item) for key, item in value.items()}
            case list() | tuple():
                return [self.of(item) for item in value]
        return value
