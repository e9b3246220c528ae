"""Functions of an operator's, as steps of pipelines have them."""

import os
import time


def strip(prompt: str) -> str:
    return prompt.strip()


def shout(text: str) -> str:
    return text.upper()


def both(text: str, prompt: str) -> str:
    return f"{prompt}: {text}"


def refuse(text: str) -> str:
    raise ValueError("no such thing")


def fail(text: str) -> str:
    return str(text[0] + 1)  # type: ignore[operator]


def die(text: str) -> str:
    os._exit(3)


def sleep(text: str) -> str:
    if text == "sleep":
        time.sleep(100)
    return text


def eat(text: str) -> str:
    if text == "eat":
        bytearray(1 << 32)
    return text


def number(text: str) -> int:
    return len(text)


def mixed(text: str) -> str:
    """Eats or dies, if that is the text."""
    return {"eat": eat, "die": die}.get(text, strip)(text)
