"""What completes prompts under the token table."""
