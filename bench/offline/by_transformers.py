"""transformers' `generate`, for bench/offline/command.py: `python -m penstock.bench.offline.by_transformers
FILE_DESCRIPTOR MODEL THREADS` answers trials, each a batch of prompts of one length."""

import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from penstock.bench.engine.own import FIRST_ID
from penstock.bench.programs.trial import Trial


def seconds(model: Any, trial: Trial, seed: int) -> float:
    """Returns the time of a batch, whose answers do not end early."""
    generator = torch.Generator().manual_seed(seed)
    shape = trial.sequences, trial.prompt
    ids = torch.randint(FIRST_ID, model.config.vocab_size, shape, generator=generator)
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=trial.new,
                       min_new_tokens=trial.new, do_sample=False, pad_token_id=0)
    return time.perf_counter() - start


def main() -> None:
    connection, model_path, threads = Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    model: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype="auto")  # which is ready to infer
    connection.send(None)
    seed = 0
    while request := connection.recv():
        trial = Trial(**request)
        connection.send((trial.sequences * trial.new, seconds(model, trial, seed)))
        seed += 1


if __name__ == "__main__":
    main()
