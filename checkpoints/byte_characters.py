"""The characters that stand for bytes in the tokens of byte-level tokenizers."""


def byte_characters() -> list[str]:
    """Returns the characters of the 256 bytes, as GPT-2 chose them: printable ones for themselves, and those from
    U+0100 on for the others, in their order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
