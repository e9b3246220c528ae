"""The routes that clouds expect of a container; they may import the other packages of the API."""
