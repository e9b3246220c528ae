"""LangChain over TGI's own route, and over chat completions by Hugging Face's client."""

import asyncio
import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint

PROMPT = "import os\n\n\ndef walk(path):\n"


def main(url: str) -> None:
    model = HuggingFaceEndpoint(endpoint_url=url, max_new_tokens=12, seed=3, return_full_text=False)
    text = model.invoke(PROMPT)
    assert text
    assert "".join(model.stream(PROMPT)) == text
    assert model.batch([PROMPT] * 3) == [text] * 3
    assert asyncio.run(model.ainvoke(PROMPT)) == text
    chat = ChatHuggingFace(llm=model, model_id="tgi", max_tokens=12)
    answer = chat.invoke("What does len do?", temperature=0)
    assert answer.content
    assert answer.usage_metadata["output_tokens"] <= 12
    chunks = chat.stream("What does len do?", temperature=0)
    assert "".join(chunk.content for chunk in chunks) == answer.content


if __name__ == "__main__":
    main(sys.argv[1])
    print("all passed")
