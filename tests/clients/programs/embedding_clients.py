"""Clients of vectors and scores: OpenAI's, Hugging Face's, LangChain's and LlamaIndex's of an embedder, Cohere's of a
reranker, too."""

import asyncio
import math
import sys
from collections.abc import Sequence

import cohere
import openai
from huggingface_hub import AsyncInferenceClient, InferenceClient
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

TEXTS = ["A penstock leads water to a turbine.", "Rome is in Italy.", "Schön, 😀 and more of it"]
KEY = "unused"


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def same(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> None:
    """Numbers come as decimals or as float32."""
    assert [len(each) for each in found] == [len(each) for each in wanted]
    assert all(abs(a - b) < 1e-6 for one, other in zip(found, wanted, strict=True)
               for a, b in zip(one, other, strict=True))


def openais(url: str) -> list[list[float]]:
    """It asks for base64 unless it is told otherwise."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)
    model = client.models.list().data[0].id
    answer = client.embeddings.create(model=model, input=TEXTS)
    vectors = [each.embedding for each in answer.data]
    assert [each.index for each in answer.data] == [0, 1, 2]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 10
    same([each.embedding for each in client.embeddings.create(model=model, input=TEXTS, encoding_format="float").data],
         vectors)
    same([client.embeddings.create(model=model, input=TEXTS[0]).data[0].embedding], vectors[:1])
    assert all(abs(math.hypot(*vector) - 1) < 1e-5 for vector in vectors)
    told = ""
    try:
        client.embeddings.create(model=model, input="a", dimensions=100_000)
    except openai.BadRequestError as error:
        told = f"{error} {error.param}"
    assert told.endswith("dimensions"), told
    return vectors


def hugging_faces(url: str, vectors: list[list[float]]) -> None:
    client = InferenceClient(url)
    for text, vector in zip(TEXTS, vectors, strict=True):
        same(client.feature_extraction(text).tolist(), [vector])
        assert client.feature_extraction(text, normalize=True, truncate=True, truncation_direction="right").shape == (
            1, len(vector))
    wanted = [cosine(vectors[0], vector) for vector in vectors[1:]]
    same([InferenceClient(f"{url}/similarity").sentence_similarity(TEXTS[0], TEXTS[1:])], [wanted])

    async def asynchronous() -> None:
        async with AsyncInferenceClient(url) as client:
            same((await client.feature_extraction(TEXTS[0])).tolist(), vectors[:1])
    asyncio.run(asynchronous())


def langchains(url: str, vectors: list[list[float]]) -> None:
    """OpenAI's class sends token ids of OpenAI's own tokenizer unless it is told not to."""
    ours = OpenAIEmbeddings(base_url=f"{url}/v1", api_key=KEY, model="any", check_embedding_ctx_length=False)
    theirs = HuggingFaceEndpointEmbeddings(model="any/any")
    theirs.client, theirs.async_client = InferenceClient(url), AsyncInferenceClient(url)  # it refuses a URL itself
    for client in (ours, theirs):
        same(client.embed_documents(TEXTS), vectors)
        same([client.embed_query(TEXTS[1])], vectors[1:2])
        same(asyncio.run(client.aembed_documents(TEXTS)), vectors)


def llama_indexes(url: str, vectors: list[list[float]]) -> None:
    for client in (OpenAILikeEmbedding(model_name="any", api_base=f"{url}/v1", api_key=KEY),
                   TextEmbeddingsInference(model_name="any", base_url=url)):
        same(client.get_text_embedding_batch(TEXTS), vectors)
        same([client.get_query_embedding(TEXTS[1])], vectors[1:2])
        same([asyncio.run(client.aget_text_embedding(TEXTS[2]))], vectors[2:])


def coheres(url: str) -> None:
    answer = cohere.ClientV2(api_key=KEY, base_url=url).rerank(model="any", query=TEXTS[0], documents=TEXTS, top_n=2)
    scores = [each.relevance_score for each in answer.results]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    older = cohere.Client(api_key=KEY, base_url=url).rerank(
        model="any", query=TEXTS[0], documents=TEXTS, return_documents=True)
    assert [each.relevance_score for each in older.results[:2]] == scores
    assert [each.document.text for each in older.results] == [TEXTS[each.index] for each in older.results]
    assert answer.meta.tokens.input_tokens > 10

    async def asynchronous() -> list[float]:
        async with cohere.AsyncClientV2(api_key=KEY, base_url=url) as client:
            found = await client.rerank(model="any", query=TEXTS[0], documents=TEXTS)
            return [each.relevance_score for each in found.results]
    assert asyncio.run(asynchronous())[:2] == scores


if __name__ == "__main__":
    kind, address = sys.argv[1:]
    coheres(address)
    if kind == "embedder":
        expected = openais(address)
        hugging_faces(address, expected)
        langchains(address, expected)
        llama_indexes(address, expected)
    print("all passed")
