"""The routes that clouds expect of a container: SageMaker's and Vertex AI's. May import the rest of the router."""
