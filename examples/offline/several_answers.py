"""Draws several answers to one prompt, and the two best of eight.

    python examples/offline/several_answers.py [MODEL]
"""

import sys

from penstock import LLM, SamplingParams

PROMPT = "def is_prime(number):\n"


def main(llm: LLM) -> None:
    [output] = llm.generate(PROMPT, SamplingParams(n=4, temperature=1.0, max_tokens=16, seed=7), use_tqdm=False)
    for answer in output.outputs:
        print(f"{answer.index}: {answer.text!r}")
    [output] = llm.generate(PROMPT, SamplingParams(n=2, best_of=8, max_tokens=16, seed=7), use_tqdm=False)
    for answer in output.outputs:
        print(f"one of the best, of logprob {answer.cumulative_logprob:.1f}: {answer.text!r}")


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
