"""What is asked of a judge: the prompt's template, the aspects and the scale."""
