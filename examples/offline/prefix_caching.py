"""Has one long text go on in many ways: it is computed once, and no answer depends on that.

    python examples/offline/prefix_caching.py [MODEL]
"""

import sys

from penstock import LLM, SamplingParams

TEXT = "".join(f"def step_{number}(value):\n    return value + {number}\n\n\n" for number in range(12))
ENDS = [f"def step_{number}(" for number in range(12, 20)]


def main(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=8)
    [first] = llm.generate(TEXT + ENDS[0], params, use_tqdm=False)
    print(f"the first time {first.num_cached_tokens} of {len(first.prompt_token_ids)} tokens were known")
    outputs = llm.generate([TEXT + end for end in ENDS], params, use_tqdm=False)
    for end, output in zip(ENDS, outputs, strict=True):
        print(f"{end}{output.outputs[0].text!r}, with {output.num_cached_tokens} tokens known")
    assert outputs[0].outputs[0].text == first.outputs[0].text


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
