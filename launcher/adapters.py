"""The adapters (LoRA) of the command line: where their files are."""

from collections.abc import Sequence
from pathlib import Path

from penstock.checkpoints import adapter_files
from penstock.launcher import hub
from penstock.router.adapters.registry import fault_of_name
from penstock.router.adapters.source import AdapterSource
from penstock.system.arguments import InvalidArgument
from penstock.system.fields import FileError
from penstock.system.setting import AskedAdapter


def find_all(
    asked: Sequence[AskedAdapter], model_id: str, cache: Path | None, has_bars: bool
) -> tuple[AdapterSource, ...]:
    """Finds the folders of all adapters, and downloads those that aren't here.

    Raises InvalidArgument, which names the adapter, if one has no files, is of a kind that is not served, or has a name
    that can't be used.
    """
    names: set[str] = set()
    for adapter in asked:
        if fault := fault_of_name(adapter.name, model_id):
            raise InvalidArgument(f"`lora_adapters`: the name {adapter.name!r} {fault}")
        if adapter.name in names:
            raise InvalidArgument(f"`lora_adapters`: there are two adapters of the name {adapter.name}")
        names.add(adapter.name)
    return tuple(_find(adapter, cache, has_bars) for adapter in asked)


def _find(asked: AskedAdapter, cache: Path | None, has_bars: bool) -> AdapterSource:
    path = hub.path_of(asked.origin)
    if path.is_dir():
        found = AdapterSource(asked.name, path.resolve(), asked.origin, asked.revision)
    elif asked.origin.startswith(("/", ".", "~")):
        raise InvalidArgument(f"`lora_adapters`: there is no directory {asked.origin}")
    else:
        path = hub.download("lora_adapters", asked.origin, asked.revision, cache, has_bars,
                            files=[adapter_files.CONFIG, adapter_files.TENSORS], not_files=[])
        found = AdapterSource(asked.name, path, asked.origin, path.name)
    try:
        adapter_files.check(found.path)
    except FileError as error:
        raise InvalidArgument(f"`lora_adapters`: {asked.name}: {error}") from error
    return found
