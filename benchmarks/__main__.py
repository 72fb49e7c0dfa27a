"""Runs one measurement and prints its figures, one JSON object a line."""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

MEASUREMENTS = {
    "ceiling": "How much of vLLM's own speed reaches the readings?",
    "peers": "How fast is the job against datatrove and a script of asyncio, which run the same loop?",
    "endpoint": "How much of the time that a chat server needs does a job take, and how many requests are given up?",
    "plan": "How long does `memagent plan` take, and how good is its estimate?",
    "listing": "How long does listing many objects of a bucket take, and how much memory?",
    "tables": "What do nights cost the code of two checkouts in seconds, memory, requests and bytes?",
    "counts": "What does the count of the words of a file take beside its reader?",
    "resume": "How much memory does a process take that goes on with many questions over one long document?",
    "templates": "What do contracts from few templates save since equal prompts are asked once?",
    "start": "How long is it from the command to the first turn, and where does the time go?",
}
"""Measurements by the names of their modules, each with the question that its figures answer.

A module has `add_options(parser)` and `measure(arguments)`."""


def main() -> None:
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m benchmarks NAME [options]; NAME --help lists the options\n")
        print("\n".join(f"  {name:<19}{question}" for name, question in MEASUREMENTS.items()))
        return
    name = sys.argv[1]
    if name not in MEASUREMENTS:
        sys.exit(f"no benchmark is called {name!r}; there are {', '.join(MEASUREMENTS)}")
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    measure: Callable[[argparse.Namespace], Iterator[dict[str, Any]]] = module.measure
    stdout = sys.stdout  # a session of Ray's that a benchmark opens turns what is printed in it to stderr
    for figures in measure(parser.parse_args(sys.argv[2:])):
        print(json.dumps({"benchmark": name, **figures}), file=stdout, flush=True)


if __name__ == "__main__":
    main()
