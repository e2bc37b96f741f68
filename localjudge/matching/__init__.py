"""Bring judged rows, labels and texts together: which label belongs to which row, and which rows are equal."""
