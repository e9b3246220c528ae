"""The sampling that a model's own files propose."""

import json
from pathlib import Path

from penstock.offline.sampling_params import SamplingParams

FILE = "generation_config.json"
FIELDS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
          "repetition_penalty": "repetition_penalty", "max_new_tokens": "max_tokens"}
"""By the keys of the file, the parameters that are read, as vLLM reads them."""


def proposed(folder: Path) -> SamplingParams:
    """Returns the parameters that a model's folder proposes; those that it has none for have their defaults. Raises
    ValueError, which names the file, if it can't be read."""
    path = folder / FILE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return SamplingParams()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a JSON object")
    return SamplingParams(**{name: found[key] for key, name in FIELDS.items() if found.get(key) is not None})
