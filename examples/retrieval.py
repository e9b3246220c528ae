"""Answers a question from texts: finds those near it by their vectors, ranks them anew, and lets a model read the best.

    python examples/retrieval.py EMBEDDER RERANKER GENERATOR "What does a penstock lead water to?"

Each is the address of a server, such as http://localhost:3000.
"""

import sys

import httpx2
from openai import OpenAI

TEXTS = ["A penstock is a pipe that leads water from a dam to a turbine.", "Rome is the capital of Italy.",
         "A turbine turns the motion of water into that of a shaft.", "Cattle are kept in a pen.",
         "Gravity pulls an apple to the ground.", "A generator makes electricity of motion."]
NEAR, BEST = 4, 2


def main(embedder: str, reranker: str, generator: str, question: str) -> None:
    embeddings = OpenAI(base_url=f"{embedder}/v1", api_key="-").embeddings
    *vectors, asked = (each.embedding for each in embeddings.create(model="-", input=[*TEXTS, question]).data)
    # Vectors have the length 1, so that their product is their cosine.
    nearness = [sum(a * b for a, b in zip(vector, asked, strict=True)) for vector in vectors]
    near = [TEXTS[place] for place in sorted(range(len(TEXTS)), key=nearness.__getitem__, reverse=True)[:NEAR]]

    body = {"query": question, "texts": near, "truncate": True}
    ranking = httpx2.post(f"{reranker}/rerank", json=body).raise_for_status().json()
    best = [near[each["index"]] for each in ranking[:BEST]]

    prompt = "\n".join(["Answer in one sentence, from these texts alone.", *best, question])
    answer = OpenAI(base_url=f"{generator}/v1", api_key="-").chat.completions.create(
        model="-", messages=[{"role": "user", "content": prompt}], max_tokens=60, temperature=0)
    print(*(f"read: {text}" for text in best), f"answer: {answer.choices[0].message.content}", sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
