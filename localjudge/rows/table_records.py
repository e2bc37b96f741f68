"""Records of tables: Parquet and Arrow files, saved datasets, and the tables of a Python program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.rows.record import Record, repeated_name, too_large
from localjudge.system.requirements import require

STATE = "state.json"
"""The file of a saved dataset that lists its Arrow files, in order."""
_ROWS_AT_ONCE = 32
"""Rows of a table that are in memory as Python values; large rows take as many times their limit."""


def read_parquet(name: str, most_bytes: int) -> Iterator[Record]:
    """Yield the records of a Parquet file."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(name, buffer_size=2**20) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from arrow_records(batch, most_bytes)


def read_arrow(name: str, most_bytes: int) -> Iterator[Record]:
    """Yield the records of an Arrow IPC file (Feather version 2) or stream.

    A folder is a dataset that `save_to_disk` of Hugging Face's datasets wrote.
    """
    for file in dataset_files(name) if Path(name).is_dir() else [name]:
        for batch in _ipc_batches(file):
            yield from _checked_records(batch, most_bytes)


def dataset_files(folder: str) -> list[str]:
    """Return the Arrow files of a saved dataset, in order.

    Raises:
        UsageError: its state cannot be read, a file is missing, or the rows are a selection of the files' rows.
    """
    try:
        state = json.loads(Path(folder, STATE).read_bytes())
        names = [str(each["filename"]) for each in state["_data_files"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{folder}: its {STATE} names no Arrow files; save the dataset again") from None
    if any(name.startswith("_indices") and value for name, value in state.items()):
        said = "its rows are a selection; save it again with dataset.flatten_indices().save_to_disk(…)"
        raise UsageError(f"{folder}: {said}")
    if missing := [name for name in names if Path(name).name != name or not Path(folder, name).is_file()]:
        raise UsageError(f"{folder}: has no file {missing[0]}, which its {STATE} names; copy it there")
    return [str(Path(folder, name)) for name in names]


def _ipc_batches(name: str) -> Iterator[Any]:
    import pyarrow

    with pyarrow.memory_map(name) as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        if is_file:
            file = pyarrow.ipc.open_file(stream)
            yield from map(file.get_batch, range(file.num_record_batches))
        else:
            yield from pyarrow.ipc.open_stream(stream)


def _checked_records(batch: Any, most_bytes: int) -> Iterator[Record]:
    """Yield the records of a batch whose buffers may be wrong: reading them unchecked could end the process."""
    import pyarrow

    try:
        batch.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        if batch.num_rows == 1:
            yield RowError(f"not a valid Arrow record: {error}")
        else:
            rows = (batch.slice(place, 1) for place in range(batch.num_rows))
            yield from chain.from_iterable(_checked_records(row, most_bytes) for row in rows)
    else:
        yield from arrow_records(batch, most_bytes)


def arrow_records(batch: Any, most_bytes: int | None = None) -> Iterator[Record]:
    """Yield the records of a `pyarrow.RecordBatch`; a value without a Python type becomes text."""
    if (repeated := repeated_name(batch.schema.names)) is not None:
        yield from [RowError(f"two columns have the name {repeated!r}")] * batch.num_rows
        return
    for part in (batch.slice(begin, _ROWS_AT_ONCE) for begin in range(0, batch.num_rows, _ROWS_AT_ONCE)):
        if most_bytes is None or part.nbytes <= most_bytes:
            columns = {name: _plain_values(part.column(place)) for place, name in enumerate(batch.schema.names)}
            yield from ({name: columns[name][place] for name in columns} for place in range(part.num_rows))
            continue
        for row in (part.slice(place, 1) for place in range(part.num_rows)):
            yield from arrow_records(row) if _row_bytes(row) <= most_bytes else [too_large(most_bytes)]


def _plain_values(column: Any) -> list[Any]:
    """Return the values of a column, with None for NaN in lists and objects, as in a DataFrame."""
    values = _values(column)
    kind = str(column.type)
    is_nested = kind.startswith(("list<", "large_list<", "fixed_size_list<", "struct<", "map<"))
    if is_nested and ("float" in kind or "double" in kind):
        return [plain(value) for value in values]
    return values


def _row_bytes(row: Any) -> int:
    # The size of a slice of a dictionary array includes the whole dictionary.
    return sum(
        (column.dictionary_decode() if hasattr(column, "dictionary_decode") else column).nbytes
        for column in row.columns
    )


def _values(column: Any) -> list[Any]:
    """Return the values of a column; those that Python has no type for are texts, as Arrow writes them."""
    import pyarrow

    kind = str(column.type)
    with suppress(*_NOT_IN_PYTHON):
        if "[ns" not in kind:  # for nanoseconds pyarrow would import pandas if it is installed
            return list(column.to_pylist())
        if not kind.startswith("duration"):  # the text of one has no unit
            return list(column.cast(pyarrow.string()).to_pylist())
    with suppress(*_NOT_IN_PYTHON):
        texts = column.cast(pyarrow.binary()).to_pylist()
        return [text and text.decode("utf-8", "surrogateescape") for text in texts]
    if len(column) != 1:  # one such value changes no other
        return [_values(column.slice(place, 1))[0] for place in range(len(column))]
    if column.null_count:
        return [None]
    if kind.startswith(("list<", "large_list<", "fixed_size_list<")):
        return [_values(column.flatten())]
    names = [each.name for each in column.type] if kind.startswith("struct<") else []
    if names and repeated_name(names) is None:
        return [{name: _values(each)[0] for name, each in zip(names, column.flatten(), strict=True)}]
    whole: dict[str, Any] = {"window": 2**31 - 1, "container_window": 2**31 - 1, "skip_new_lines": True}
    return [f"{kind}: {column.to_string(**whole)}"]


_NOT_IN_PYTHON = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError)
"""Errors of pyarrow for text that is not UTF-8, dates out of range, unknown time zones."""


def table_records(table: object) -> Iterator[Record] | None:
    """Return the records of a pandas or Polars DataFrame, or of anything that exports an Arrow stream.

    Return None for anything else. A dataset of Hugging Face's datasets is not a table: it yields dicts.

    Raises:
        UsageError: two columns of a DataFrame have the same name.
    """
    # A caller with a table has already imported its library.
    pandas, polars = (sys.modules.get(name) for name in ("pandas", "polars"))
    if pandas and isinstance(table, pandas.DataFrame):
        if (repeated := repeated_name(map(str, table.columns))) is not None:
            raise UsageError(f"rows: two columns of the DataFrame have the name {repeated!r}; rename one")
        return _pandas_records(table)
    if polars and isinstance(table, polars.DataFrame):
        return (
            {name: plain(value) for name, value in record.items()} for record in table.iter_rows(named=True)
        )
    if hasattr(table, "__arrow_c_stream__"):
        require("rows: an Arrow stream", "parquet")
        import pyarrow

        try:
            stream = pyarrow.RecordBatchReader.from_stream(table)
        except pyarrow.ArrowInvalid:  # a single column
            return None
        return chain.from_iterable(map(arrow_records, stream))
    return None


def _pandas_records(frame: Any) -> Iterator[Record]:
    names = [str(name) for name in frame.columns]
    for begin in range(0, len(frame), _ROWS_AT_ONCE):
        part = frame.iloc[begin : begin + _ROWS_AT_ONCE].set_axis(names, axis=1)
        for record in part.astype(object).to_dict("records"):
            yield {name: plain(value) for name, value in record.items()}


def plain(value: Any) -> Any:
    """Return a value of NumPy, pandas or Arrow as one of Python: an array as a list, NA and NaT as None."""
    if value is None or isinstance(value, str | bool | int | bytes):
        return value
    if isinstance(value, float):
        return None if value != value else float(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # an array, or a number, of NumPy
        return plain(value.tolist())
    if hasattr(value, "as_py"):
        return plain(value.as_py())
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value
