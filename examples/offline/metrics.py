"""Answers some prompts, and prints a part of what the engine has counted meanwhile. The series are those of a server.

    python examples/offline/metrics.py [MODEL]
"""

import sys

from penstock import LLM, Counter, Gauge, Histogram, SamplingParams

PROMPTS = ["def first(values):", "def last(values):", "class Stack:"]


def main(llm: LLM) -> None:
    llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    for metric in llm.get_metrics():
        match metric:
            case _ if not metric.name.startswith("vllm:"):
                continue  # Penstock's and TGI's names for the same, and for more
            case Counter() | Gauge():
                print(f"{metric.name} = {metric.value}")
            case Histogram():
                print(f"{metric.name}: {metric.count} values, {metric.sum / max(1, metric.count):.4f} on average")


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
