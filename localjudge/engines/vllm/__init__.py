"""The vLLM engine, with the token table inside its sampler."""
