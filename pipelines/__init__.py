"""One folder a pipeline, each with its defs.yaml."""
