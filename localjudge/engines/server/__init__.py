"""Engines that are servers: requests over HTTP to a model that runs already."""
