"""Random JSON schemas that can be satisfied, from a seed."""

import random
from typing import Any

Schema = dict[str, Any]

WORDS = ("alpha", "beta", "gamma", "delta", "name", "size", "städte", "last name", "it's", 'a "b"', "x/y", "id", "Ω")
PATTERNS = ("^[a-z]{2,6}$", "^[A-Z]{3}-[0-9]{4}$", "^(red|green|blue)$", r"^\d{1,3}(\.\d{1,3})?$", "^[^\"\\\\]{0,8}$")
FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4")


class SchemaMaker:
    """`make()` gives the next schema; the same seed gives the same ones. Strings and arrays have bounds, so that an
    answer of some hundred tokens can satisfy each."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._definitions: dict[str, Schema] = {}

    def make(self) -> Schema:
        self._definitions = {}
        schema = self._object(depth=self._random.randint(1, 3))
        if self._definitions:
            schema["$defs"] = self._definitions
        if self._random.random() < 0.3:
            schema |= {"title": "A thing", "description": "What is asked for."}
        return schema

    def _any(self, depth: int) -> Schema:
        simple = (self._string, self._string, self._integer, self._number, self._boolean, self._null, self._enum,
                  self._const)
        nested = (self._object, self._array, self._any_of, self._reference, self._nullable)
        if depth > 0 and self._random.random() < 0.5:
            return self._random.choice(nested)(depth - 1)
        return self._random.choice(simple)()

    def _object(self, depth: int) -> Schema:
        names = self._random.sample(WORDS, self._random.randint(1, 4))
        required = [name for name in names if self._random.random() < 0.6]
        schema: Schema = {"type": "object", "properties": {name: self._any(depth) for name in names}}
        if required or self._random.random() < 0.5:
            schema["required"] = required
        kind = self._random.random()
        if kind < 0.5:
            schema["additionalProperties"] = False
        elif kind < 0.6:
            schema["additionalProperties"] = True
        elif kind < 0.7:
            schema["additionalProperties"] = self._any(0)
        return schema

    def _array(self, depth: int) -> Schema:
        low = self._random.randint(0, 2)
        schema: Schema = {"type": "array", "minItems": low, "maxItems": low + self._random.randint(0, 3)}
        if self._random.random() < 0.2:
            schema |= {"prefixItems": [self._any(depth) for _ in range(low)], "items": self._any(0)}
        else:
            schema["items"] = self._any(depth)
        return schema

    def _any_of(self, depth: int) -> Schema:
        return {"anyOf": [self._any(depth) for _ in range(self._random.randint(2, 3))]}

    def _nullable(self, depth: int) -> Schema:
        schema = self._any(depth)
        if isinstance(schema.get("type"), str) and "enum" not in schema:
            return schema | {"type": sorted({schema["type"], "null"})}
        return {"anyOf": [schema, {"type": "null"}]}

    def _reference(self, depth: int) -> Schema:
        """To a definition of its own, or to a list that contains itself."""
        name = f"d{len(self._definitions)}"
        self._definitions[name] = {}
        if self._random.random() < 0.3:
            self._definitions[name] = {
                "type": "object", "required": ["value"], "additionalProperties": False,
                "properties": {"value": self._any(0),
                               "next": {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/{name}"}]}}}
        else:
            self._definitions[name] = self._any(depth)
        return {"$ref": f"#/$defs/{name}"}

    def _string(self) -> Schema:
        kind = self._random.random()
        if kind < 0.2:
            return {"type": "string", "pattern": self._random.choice(PATTERNS)}
        if kind < 0.35:
            return {"type": "string", "format": self._random.choice(FORMATS)}
        low = self._random.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + self._random.randint(0, 20)}

    def _integer(self) -> Schema:
        kind = self._random.random()
        low = self._random.randint(-1000, 1000)
        if kind < 0.2:
            return {"type": "integer"}
        if kind < 0.4:
            return {"type": "integer", self._random.choice(["minimum", "exclusiveMinimum"]): low}
        if kind < 0.5:
            return {"type": "integer", "multipleOf": self._random.choice([2, 3, 7, 10])}
        return {"type": "integer", "minimum": low, "maximum": low + self._random.randint(0, 5000)}

    def _number(self) -> Schema:
        low = round(self._random.uniform(-100, 100), 2)
        schema: Schema = {"type": "number", "minimum": low, "maximum": low + self._random.randint(1, 100)}
        if self._random.random() < 0.3:
            return {"type": "number", self._random.choice(["exclusiveMinimum", "exclusiveMaximum"]): low}
        return schema

    def _boolean(self) -> Schema:
        return {"type": "boolean"}

    def _null(self) -> Schema:
        return {"type": "null"}

    def _enum(self) -> Schema:
        values: list[Any] = [*self._random.sample(WORDS, 3), 1, 2.5, None, True, ["a", 1], {"k": "v"}]
        return {"enum": self._random.sample(values, self._random.randint(1, 5))}

    def _const(self) -> Schema:
        return {"const": self._random.choice([*WORDS, 42, -0.5, False, None, [1, 2], {"a": {"b": []}}])}
