"""The metadata of a GGUF file."""

from penstock.router.fields import Fields, FileError


class GgufError(FileError):
    """A GGUF file is missing, damaged, or holds what is not read."""


class Metadata(Fields):
    """The keys of a GGUF file."""

    error_type = GgufError
