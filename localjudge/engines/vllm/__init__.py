"""The batch engine: vLLM, with the token table inside its sampler."""
