"""Completes some texts, without a server.

    python examples/offline/basic.py [MODEL]
"""

import sys

from penstock import LLM, SamplingParams

PROMPTS = ["def area(width, height):", "import json\n\n\ndef load(path):", "# The largest of three numbers\n"]


def main(llm: LLM) -> None:
    params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=24)
    for output in llm.generate(PROMPTS, params):
        print(f"{output.prompt!r} goes on with {output.outputs[0].text!r}")


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
