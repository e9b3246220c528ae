"""The routes that SageMaker and Vertex AI expect of a container; may import api.http, api.openai, api.tei, api.tgi,
chat, contract, errors, generation and shapes."""
