"""Asks many questions about one long text: it is computed once, and no answer depends on that.

    python examples/offline/prefix_caching.py [MODEL]
"""

import sys

from penstock import LLM, SamplingParams

TEXT = "".join(f"def step_{number}(value):\n    return value + {number}\n\n\n" for number in range(12))
QUESTIONS = [f"step_{number}(1) # is " for number in range(8)]


def main(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=8)
    [first] = llm.generate(TEXT + QUESTIONS[0], params, use_tqdm=False)
    print(f"the first time {first.num_cached_tokens} of {len(first.prompt_token_ids)} tokens were known")
    outputs = llm.generate([TEXT + question for question in QUESTIONS], params, use_tqdm=False)
    for question, output in zip(QUESTIONS, outputs, strict=True):
        print(f"{question}{output.outputs[0].text!r}, with {output.num_cached_tokens} tokens known")
    assert outputs[0].outputs[0].text == first.outputs[0].text


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
