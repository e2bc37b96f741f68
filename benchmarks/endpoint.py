"""The speed of `localjudge serve` beside a run of the same rows: clients over HTTP, and `Judge.score`.

    python benchmarks/endpoint.py rows.jsonl [--model DIR] [--clients 4] [--rows 200] [--per-request 20]

Both use one judge with one open engine, and take turns, round by round. Each client sends its own rows in
requests of a few rows, one after the other, as a training loop does.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import results_table
import uvicorn
from throughput import judged_rows

from localjudge import Judge
from localjudge.integrations.http_app import AccessRules, JudgeApp
from localjudge.integrations.judge_service import JudgeService
from localjudge.integrations.served_rewards import RewardFormula


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="JSONL, CSV or Parquet files of rows")
    parser.add_argument("--model", help="a model directory; default: the bundled model")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rows", type=int, default=200, help="rows of each client")
    parser.add_argument("--per-request", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-rationale-tokens", type=int, default=32)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    with Judge(options.model, max_rationale_tokens=options.max_rationale_tokens) as judge:
        rows = judged_rows(judge, options.inputs, options.rows * options.clients)
        names = ("id", "instruction", "reference", "candidate")
        records = [{name: getattr(row, name) for name in names} for row in rows]
        _ = list(judge.score(records[:1]))  # loads the model
        speeds: dict[str, list[float]] = {"score": [], "serve": []}
        scores: dict[str, dict[Any, Any]] = {}
        for _round in range(options.rounds):
            begin = time.perf_counter()
            scores["score"] = {each.id: each.key for each in judge.score(records)}
            speeds["score"].append(len(records) / (time.perf_counter() - begin))
            begin = time.perf_counter()
            scores["serve"] = served(judge, records, options.clients, options.per_request)
            speeds["serve"].append(len(records) / (time.perf_counter() - begin))
    assert scores["score"] == scores["serve"]
    found = {name: median(each) for name, each in speeds.items()}
    ratio = median(one / other for one, other in zip(speeds["serve"], speeds["score"], strict=True))
    results_table.table(
        f"{options.clients} clients, {len(records)} rows, {options.per_request} a request",
        ["way", "rows/s"],
        [[name, f"{speed:.2f}"] for name, speed in found.items()],
    )
    print(f"serve to score: {ratio:.2f}")
    setting = {"clients": options.clients, "rows": len(records), "per_request": options.per_request}
    results_table.write(
        "endpoint", setting | {"rows_per_second": found, "serve_to_score": ratio}, options.results
    )


def served(judge: Judge, records: list[dict[str, Any]], clients: int, per_request: int) -> dict[Any, Any]:
    """Return the key of each row, judged for several clients over HTTP."""
    with address(judge) as url:

        def client(place: int) -> list[dict[str, Any]]:
            own = records[place::clients]
            parts = [own[begin : begin + per_request] for begin in range(0, len(own), per_request)]
            return [line for part in parts for line in posted(f"{url}/v1/judge", part)["outcomes"]]

        with ThreadPoolExecutor(clients) as pool:
            lines = [line for found in pool.map(client, range(clients)) for line in found]
    return {line["id"]: line["key"] for line in lines}


@contextmanager
def address(judge: Judge, reward: str | None = None) -> Iterator[str]:
    """Yield the address at which a judge is served, with a reward formula if rewards are asked."""
    formula = RewardFormula.parse(reward, judge.rubric) if reward else None
    with JudgeService(judge) as service:
        app = JudgeApp(judge, service, AccessRules(), formula).asgi()
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.001)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()


def posted(url: str, records: list[dict[str, Any]]) -> Any:
    """Return the answer to a request with these rows."""
    request = urllib.request.Request(url, json.dumps(records).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
