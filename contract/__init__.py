"""The contract of the router and the shards: the nouns of their orders, results and facts, each declared once and
plain, and their way to protobuf and back; may import protos."""
