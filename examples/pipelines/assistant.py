"""The steps around a model's answer: each gets what the one before it has made, and returns what the next one gets."""

MOST = 2000
"""The most characters of a prompt."""


def preprocess(prompt: str) -> str:
    """Makes one line of a prompt. What a ValueError says is told to the client, with the status 422."""
    line = " ".join(prompt.split())
    if len(line) > MOST:
        raise ValueError(f"a prompt may have {MOST} characters, and this one has {len(line)}")
    return line


def postprocess(text: str) -> str:
    """Leaves out what is behind the last whole sentence, if there is one."""
    end = max(text.rfind(mark) for mark in ".!?")
    return text[:end + 1].strip() if end >= 0 else text.strip()
