"""Answers with an adapter (LoRA) and without, in one batch.

    python examples/offline/adapters.py MODEL ADAPTER
"""

import sys

from penstock import LLM, LoRARequest, SamplingParams

PROMPT = "def greet(name):"


def main(llm: LLM, path: str) -> None:
    adapter = LoRARequest("mine", 1, path)
    params = SamplingParams(temperature=0, max_tokens=16)
    for output in llm.generate([PROMPT, PROMPT], params, lora_request=[None, adapter], use_tqdm=False):
        name = "the model" if output.lora_request is None else output.lora_request.lora_name
        print(f"{name}: {output.outputs[0].text!r}")


if __name__ == "__main__":
    with LLM(sys.argv[1], enable_lora=True) as llm:
        main(llm, sys.argv[2])
