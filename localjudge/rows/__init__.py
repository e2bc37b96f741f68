"""From input files to rows."""
