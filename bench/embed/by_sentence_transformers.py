"""sentence-transformers' `encode`, for bench/embed/command.py.

Runs under the Python of the peers' environment, where nothing of Penstock's can be imported: `python -P
by_sentence_transformers.py FILE_DESCRIPTOR MODEL THREADS` answers lists of texts with the seconds and the vectors.
"""

import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
from sentence_transformers import SentenceTransformer


def encode(model: Any, texts: list[str], batch: int) -> tuple[float, bytes]:
    """Returns the seconds, and the vectors in float32, one behind the other."""
    start = time.perf_counter()
    vectors = model.encode(texts, batch_size=batch, show_progress_bar=False)
    return time.perf_counter() - start, vectors.tobytes()


def main() -> None:
    connection, path, threads = Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    model = SentenceTransformer(path, device="cpu", model_kwargs={"dtype": "float32"})
    connection.send(None)
    while request := connection.recv():
        connection.send(encode(model, **request))


if __name__ == "__main__":
    main()
