"""vLLM's `LLM.generate`, for bench/offline/command.py.

Runs under the Python of vLLM's own environment, where nothing of Penstock's can be imported: `python -P by_vllm.py
FILE_DESCRIPTOR MODEL BATCH LENGTH` answers lists of prompts, up to BATCH at once, in a context of LENGTH tokens.
"""

import sys
import time
from multiprocessing.connection import Connection

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt


def seconds(llm: LLM, prompts: list[list[int]], new: int) -> float:
    """Returns the time of all answers, which do not end early."""
    params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
    start = time.perf_counter()
    llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
    return time.perf_counter() - start


def main() -> None:
    connection, model = Connection(int(sys.argv[1])), sys.argv[2]
    llm = LLM(model, dtype="bfloat16", max_num_seqs=int(sys.argv[3]), max_model_len=int(sys.argv[4]),
              enable_prefix_caching=False, gpu_memory_utilization=0.5)
    connection.send(None)
    while request := connection.recv():
        connection.send(seconds(llm, **request))


if __name__ == "__main__":
    main()
