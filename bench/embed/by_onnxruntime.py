"""ONNX Runtime, used as fastembed uses it, for bench/embed/command.py.

Runs under the Python of the peers' environment, where nothing of Penstock's can be imported: `python -P
by_onnxruntime.py FILE_DESCRIPTOR MODEL THREADS LONGEST` answers lists of texts with the seconds and the vectors. The
texts are sorted by length, cut to LONGEST tokens, and computed in batches; vectors are means of unit length. A model
without onnx/model.onnx is exported first.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def export(model: Path, file: Path) -> None:
    """Writes the encoder's layers as a graph in which batch and length are free."""
    import torch
    from transformers import AutoModel

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = AutoModel.from_pretrained(model, dtype="float32", attn_implementation="eager").eval()

        def forward(self, *tensors: Any) -> Any:
            return self.inner(**dict(zip(INPUTS, tensors, strict=True))).last_hidden_state

    example = torch.ones(2, 8, dtype=torch.long)
    names = [*INPUTS, "last_hidden_state"]
    torch.onnx.export(
        Layers(), (example, example, torch.zeros_like(example)), str(file), input_names=list(INPUTS),
        output_names=names[-1:], dynamic_axes={name: {0: "batch", 1: "length"} for name in names}, opset_version=17,
        dynamo=False)


def encode(run: Callable[..., Any], tokenizer: Any, texts: list[str], batch: int) -> tuple[float, bytes]:
    """Returns the seconds, and the vectors in float32, one behind the other."""
    start = time.perf_counter()
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    found: dict[int, Any] = {}
    for begin in range(0, len(order), batch):
        places = order[begin:begin + batch]
        encodings = tokenizer.encode_batch([texts[place] for place in places])
        ids = np.array([each.ids for each in encodings], np.int64)
        mask = np.array([each.attention_mask for each in encodings], np.int64)
        [hidden] = run(None, dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True)))
        means = np.einsum("blc,bl->bc", hidden, mask.astype(np.float32)) / mask.sum(1, keepdims=True)
        found.update(zip(places, means / np.linalg.norm(means, axis=1, keepdims=True), strict=True))
    vectors = np.array([found[place] for place in range(len(texts))], np.float32)
    return time.perf_counter() - start, vectors.tobytes()


def session(model: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    file = model / "onnx" / "model.onnx"
    with tempfile.TemporaryDirectory() as folder:
        if not file.exists():
            export(model, file := Path(folder) / "model.onnx")
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def main() -> None:
    connection, model, threads = Connection(int(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(int(sys.argv[4]))
    tokenizer.enable_padding()
    run = session(model, threads).run
    connection.send(None)
    while request := connection.recv():
        connection.send(encode(run, tokenizer, **request))


if __name__ == "__main__":
    main()
