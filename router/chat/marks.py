"""Marks in the text of an answer, which may come in pieces. Pure."""


def held_back(text: str, mark: str) -> int:
    """Returns how many characters at the end of the text may be the beginning of `mark`."""
    if not mark:
        return 0
    place = text.find(mark[0], max(0, len(text) - len(mark) + 1))
    while place >= 0 and not mark.startswith(text[place:]):
        place = text.find(mark[0], place + 1)
    return 0 if place < 0 else len(text) - place
