"""Prints answers as they grow, several at once.

    python examples/offline/streaming.py [MODEL]
"""

import asyncio
import sys

from penstock import AsyncLLM, RequestOutputKind, SamplingParams

PROMPTS = ["def add(a, b):", "class Queue:"]


async def show(llm: AsyncLLM, prompt: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=24, output_kind=RequestOutputKind.DELTA)
    async for output in llm.generate(prompt, params):
        print(f"{prompt} {output.outputs[0].text!r}", flush=True)


async def main(model: str) -> None:
    async with AsyncLLM(model) as llm:
        await asyncio.gather(*(show(llm, prompt) for prompt in PROMPTS))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint"))
