"""Holds a conversation: each turn is asked with all turns before it, whose tokens are in the prefix cache.

    python examples/offline/chat.py [MODEL]
"""

import sys
from typing import Any

from penstock import LLM, SamplingParams

QUESTIONS = ["What does `zip` do?", "And with lists of different lengths?"]


def main(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=32)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You answer in one sentence."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        [output] = llm.chat(messages, params, use_tqdm=False)
        answer = output.outputs[0].text
        messages.append({"role": "assistant", "content": answer})
        print(f"{question}\n  {answer!r}\n  {output.num_cached_tokens} of {len(output.prompt_token_ids)} tokens of the "
              "prompt were known")


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
