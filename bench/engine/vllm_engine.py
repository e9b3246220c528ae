"""vLLM's engine, without HTTP, for bench/engine/command.py.

Runs under the Python of vLLM's own environment, where nothing of Penstock's can be imported:
`python -P vllm_engine.py FILE_DESCRIPTOR MODEL`.
"""

import itertools
import random
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind

FIRST_ID = 16                            # behind the special tokens


class VllmEngine:
    def __init__(self, model: str) -> None:
        llm = LLM(model, dtype="bfloat16", max_model_len=2048, max_num_seqs=64, enable_prefix_caching=False,
                  gpu_memory_utilization=0.5)
        self._engine = llm.llm_engine
        self._vocab_size = llm.get_tokenizer().vocab_size
        self._numbers = itertools.count()

    def run(self, trial: dict[str, Any]) -> tuple[int, float]:
        """Returns tokens and seconds, as trial.py says of a trial and its result."""
        start = time.perf_counter()
        num_sequences = trial["sequences"]
        for _ in range(num_sequences):
            self._add(trial)
        times, counts = [], []
        num_given: dict[str, int] = {}
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            times.append(time.perf_counter())
            for output in outputs:
                num_given[output.request_id] = num_given.get(output.request_id, 0) + len(output.outputs[0].token_ids)
            # Each step: how many sequences have begun, whether one is complete, tokens so far.
            counts.append((len(num_given), max(num_given.values(), default=0) >= trial["new"], sum(num_given.values())))
        full = next(step for step, (begun, _, _) in enumerate(counts) if begun == num_sequences)
        if trial["new"] == 1:
            return num_sequences * trial["prompt"], times[full] - start
        end = next(step for step, (_, is_complete, _) in enumerate(counts) if is_complete)
        return counts[end][2] - counts[full][2], times[end] - times[full]

    def _add(self, trial: dict[str, Any]) -> None:
        number = next(self._numbers)
        ids = random.Random(number).choices(range(FIRST_ID, self._vocab_size), k=trial["prompt"])
        sampling = {"temperature": 0.8, "top_p": 0.95} if trial["is_sampled"] else {"temperature": 0.0}
        parameters = SamplingParams(
            **sampling, max_tokens=trial["new"], ignore_eos=True, detokenize=False,
            output_kind=RequestOutputKind.DELTA)
        self._engine.add_request(str(number), TokensPrompt(prompt_token_ids=ids), parameters)


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    engine = VllmEngine(sys.argv[2])
    connection.send(None)
    while trial := connection.recv():
        connection.send(engine.run(trial))


if __name__ == "__main__":
    main()
