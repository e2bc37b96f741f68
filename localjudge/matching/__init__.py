"""One join of judged rows, labels and texts: what identifies a row or a record, and the systems of runs."""
