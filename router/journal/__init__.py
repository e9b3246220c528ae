"""The log of requests by which they can be computed again: its records, and the places where they are written; may
import contract, engine, errors, generation, metrics, request_id and store."""
