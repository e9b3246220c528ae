"""Finds texts by their vectors. A function may take several values, by the names of the steps that make them."""

TEXTS = ["A penstock is a pipe that leads water from a dam to a turbine.", "Rome is the capital of Italy.",
         "A turbine turns the motion of water into that of a shaft.", "Cattle are kept in a pen.",
         "Gravity pulls an apple to the ground.", "A generator makes electricity of motion."]
NEAR = 4


def texts(prompt: str) -> list[str]:
    """Returns all texts, behind the question, for their vectors to be made; a larger library has them in a database."""
    return [prompt, *TEXTS]


def retrieve(vectors: list[list[float]]) -> list[str]:
    """Returns the texts whose vectors are the nearest to that of the question. Vectors have the length 1, so that their
    product is their cosine."""
    asked, *known = vectors
    nearness = [sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in known]
    places = sorted(range(len(TEXTS)), key=nearness.__getitem__, reverse=True)
    return [TEXTS[place] for place in places[:NEAR]]
