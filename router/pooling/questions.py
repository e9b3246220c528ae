"""How language models that rerank are asked whether a document fits a query."""

from dataclasses import dataclass

from penstock.contract.facts import Facts
from penstock.contract.pooling import YES_NO, Task
from penstock.router.text.tokenizer import Tokenizer

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """The prompt of a pair of texts: `before` and `after` are the same for all pairs. `instruction` says what the
    model is to look for, unless a request says so."""

    before: str
    form: str
    after: str
    instruction: str

    def written(self, query: str, document: str, instruction: str | None) -> str:
        """Returns the part of the prompt that is another one for each pair."""
        return self.form.format(instruction=instruction or self.instruction, query=query, document=document)


_QWEN3 = Question(
    before="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
           'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    form="<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
    after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query")
"""That of Qwen3-Reranker."""


def question_of(facts: Facts) -> Question | None:
    """Returns the question by which a model reranks; None for one that takes pairs of texts, or does not rerank."""
    return _QWEN3 if Task.CLASSIFY in facts.tasks and facts.pooling == YES_NO else None


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """A question with the tokens of what all pairs have `before` and `after` them."""

    question: Question
    before: Ids
    after: Ids


async def read_question(facts: Facts, tokenizer: Tokenizer) -> ReadQuestion | None:
    """Returns the question by which a model reranks with its tokens, if there is one."""
    question = question_of(facts)
    if question is None:
        return None
    return ReadQuestion(question, *[await tokenizer.encode(text, add_special_tokens=False)
                                    for text in (question.before, question.after)])
