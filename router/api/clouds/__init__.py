"""The routes that SageMaker and Vertex AI expect of a container; may import api.http, api.openai, api.tgi, errors and
generation."""
