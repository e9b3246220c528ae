"""The routes that SageMaker and Vertex AI expect of a container; may import api.http, api.openai, api.tgi, chat,
errors, generation and shapes."""
