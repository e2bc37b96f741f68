"""Records of a table of a Python program: pandas, Polars, Arrow, or anything that exports an Arrow stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from localjudge.errors import UsageError
from localjudge.rows.arrow_records import arrow_records
from localjudge.rows.record import Record, repeated_name
from localjudge.system.requirements import require


def table_records(table: object) -> Iterator[Record] | None:
    """Return the records of a pandas or Polars DataFrame, or of anything that exports an Arrow stream.

    Return None for anything else. A dataset of Hugging Face's datasets is not a table: it yields dicts.

    Raises:
        UsageError: two columns have the same name, the rows of a Polars query have not been computed, or the
            table has several parts, such as a DatasetDict.
    """
    # A caller with a table has already imported its library.
    pandas, polars, datasets = (sys.modules.get(name) for name in ("pandas", "polars", "datasets"))
    if pandas and isinstance(table, pandas.DataFrame):
        if (repeated := repeated_name(map(str, table.columns))) is not None:
            raise UsageError(f"rows: two columns of the DataFrame have the name {repeated!r}; rename one")
        return _pandas_records(table)
    if polars and isinstance(table, polars.LazyFrame):
        raise UsageError("rows: a LazyFrame has no rows yet; write score(frame.collect())")
    if polars and isinstance(table, polars.DataFrame):
        return (record for record in table.iter_rows(named=True))
    if datasets and isinstance(table, datasets.DatasetDict | datasets.IterableDatasetDict):
        split = next(iter(table), "test")
        raise UsageError(f"rows: a {type(table).__name__} has several splits; write score(rows[{split!r}])")
    if hasattr(table, "__arrow_c_stream__"):
        require("rows: an Arrow stream", "parquet")
        import pyarrow

        try:
            stream = pyarrow.RecordBatchReader.from_stream(table)
        except pyarrow.ArrowInvalid:  # a single column
            return None
        if (repeated := repeated_name(stream.schema.names)) is not None:
            raise UsageError(f"rows: two columns of the table have the name {repeated!r}; rename one")
        return (
            record
            for batch in stream
            for begin in range(0, batch.num_rows, 256)
            for record in arrow_records(batch.slice(begin, 256))
        )
    return None


def _pandas_records(frame: Any) -> Iterator[Record]:
    names = [str(name) for name in frame.columns]
    for begin in range(0, len(frame), 256):
        part = frame.iloc[begin : begin + 256].set_axis(names, axis=1)
        yield from part.astype(object).where(part.notna(), None).to_dict("records")
