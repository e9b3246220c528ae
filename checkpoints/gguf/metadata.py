"""The metadata of a GGUF file."""

from penstock.system.fields import Fields, FileError


class GgufError(FileError):
    """A GGUF file is missing, damaged, or holds what is not read."""


class Metadata(Fields):
    """The keys of a GGUF file."""

    error_type = GgufError

    def of_each_layer(self, key: str, layers: int, default: int | None = None) -> int:
        """Returns the number that a key has for all layers: one, or a list of an equal one for each."""
        value = self.get(key, default)
        if not isinstance(value, list):
            return self.integer(key, default, least=1)
        first = value[0] if value else None
        if value != [first] * layers or type(first) is not int or not 1 <= first < 2**31:
            raise self.error(key, f"one whole number of at least 1, or {layers} equal ones, for layers are computed "
                                  "alike")
        return first
