"""The tokens of a text for those who ask for nothing else."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.router.errors import ValidationError
from penstock.router.generation.service import Service
from penstock.router.text.encoding import TokenizerError


async def split(service: Service, text: str, add_special_tokens: bool = True) -> AsyncGenerator[bytes]:
    """Yields JSON lists of the text's tokens; ValidationError if it can't be split."""
    try:
        async with aclosing(service.tokenizer.split(text, add_special_tokens)) as parts:
            async for part in parts:
                yield part
    except TokenizerError as error:
        raise ValidationError(f"tokenizer error {error}") from error
