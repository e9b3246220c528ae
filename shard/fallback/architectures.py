"""Which architectures transformers computes, and how its classes are found."""

from importlib import metadata, util
from typing import Any

from penstock.shard.models.families import NAMES
from penstock.shard.models.keys import Keys, ModelConfigError

PACKAGE = "transformers"
NEEDED = "`pip install 'penstock[transformers]'` lets transformers compute it"


def is_installed() -> bool:
    return util.find_spec(PACKAGE) is not None


def version() -> str:
    return metadata.version(PACKAGE)


def causal_models() -> frozenset[str]:
    """Returns the names of the classes that transformers has for texts that are continued."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    values = (names if isinstance(names, (list, tuple)) else (names,) for names in NAMES.values())
    return frozenset(name for names in values for name in names)


def model_class(keys: Keys) -> Any:
    """Returns transformers' class of the architecture that config.json names. Raises ModelConfigError if there is none.
    """
    names = keys.get("architectures")
    name = str(names[0]) if isinstance(names, list) and len(names) == 1 else None
    if not is_installed():
        raise keys.error("architectures", f"a native one ({NAMES}), for transformers is not installed ({NEEDED})")
    if name is None or name not in causal_models():
        own = ", and what its auto_map names is not run" if keys.get("auto_map") else ""
        raise keys.error("architectures", f"a native one ({NAMES}), or the name of a class that transformers "
                                          f"{version()} has for causal language models{own}")
    import transformers

    try:
        return getattr(transformers, name)
    except (AttributeError, ImportError, RuntimeError) as error:
        raise ModelConfigError(f"{keys.path}: architectures: transformers {version()} cannot import {name}: {error}"
                               ) from error
