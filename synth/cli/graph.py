"""`pipesynth graph`: the size of a problem's dependency graph, and the graph as DOT or GraphML."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from synth.cli.options import add_problem_options, read_problem
from synth.cli.output import number, print_json
from synth.errors import UsageError
from synth.outputs import check_output, write_output

if TYPE_CHECKING:
    import networkx as nx

    from synth.op import Op


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    text = "print the size of the dependency graph, and write it as DOT or GraphML"
    parser = verbs.add_parser("graph", help=text, description=text, allow_abbrev=False)
    add_problem_options(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the graph here: FILE.dot or FILE.graphml"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Build the graph, print its size and write it."""
    write = None if args.output is None else _writer(args.output)
    check_output(args.output)
    problem = read_problem(args)

    from synth.graph import build_graph

    graph = build_graph(problem)
    ticks, path = _longest_path(graph)
    if write is not None:
        write_output(args.output, write(graph))
    size = {
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "longest_path": problem.units.ticks(ticks),
        "longest_path_ops": [str(node) for node in path],
        "file": args.output,
    }
    if args.json:
        print_json(size)
        return 0
    print(f"nodes         {size['nodes']}")
    print(f"edges         {size['edges']}")
    print(f"longest path  {number(problem.units.ticks(ticks))} ({len(path)} ops)")
    if args.output is not None:
        print(f"written to    {args.output}")
    return 0


def _longest_path(graph: nx.DiGraph[Op]) -> tuple[int, list[Op]]:
    """Ticks from the first start to the last end on unlimited devices, and the ops that decide."""
    import networkx as nx

    ends: dict[Op, int] = {}
    deciding: dict[Op, Op | None] = {}
    for node in nx.topological_sort(graph):
        arrivals = [
            (ends[before] + graph.edges[before, node]["lag"], before) for before in graph.pred[node]
        ]
        start, deciding[node] = max(arrivals, key=lambda arrival: arrival[0], default=(0, None))
        ends[node] = start + graph.nodes[node]["duration"]
    node = max(ends, key=ends.__getitem__)
    path, before = [node], deciding[node]
    while before is not None:
        path.append(before)
        before = deciding[before]
    return ends[node], path[::-1]


def _writer(path: str) -> Callable[[nx.DiGraph[Op]], str]:
    suffix = Path(path).suffix
    if suffix not in _WRITERS:
        raise UsageError(f"-o {path}: cannot tell the format; use a name in .dot or .graphml")
    return _WRITERS[suffix]


def _dot(graph: nx.DiGraph[Op]) -> str:
    nodes = [
        f'  "{node}" [kind={data["kind"]}, device={data["device"]}, duration={data["duration"]}];'
        for node, data in graph.nodes(data=True)
    ]
    edges = [
        f'  "{before}" -> "{after}" [lag={lag}];' for before, after, lag in graph.edges(data="lag")
    ]
    return "\n".join(["digraph pipeline {", *nodes, *edges, "}"]) + "\n"


def _graphml(graph: nx.DiGraph[Op]) -> str:
    import networkx as nx

    return "\n".join(nx.generate_graphml(nx.relabel_nodes(graph, str))) + "\n"


_WRITERS = {".dot": _dot, ".graphml": _graphml}
