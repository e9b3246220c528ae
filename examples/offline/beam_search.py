"""Searches for the likeliest answers to some prompts, four beams for each.

    python examples/offline/beam_search.py [MODEL]
"""

import sys

from penstock import LLM, BeamSearchParams

PROMPTS = ["def add(a, b):", "# Sort the list"]


def main(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=4, max_tokens=12, num_return_sequences=2)
    for output in llm.beam_search(PROMPTS, params):
        for sequence in output.sequences:
            print(f"{sequence.score:.2f} {sequence.text!r}")


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
