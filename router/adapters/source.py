"""Where an adapter comes from."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """The name that requests call an adapter by, and the folder of its files.

    `origin` is the folder, or the repository on the Hugging Face Hub, as it was given; `revision` is its commit there.
    """

    name: str
    path: Path
    origin: str
    revision: str | None = None
