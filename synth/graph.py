"""The dependency graph: F, B and W nodes with durations, edges with communication lags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from synth.op import Kind, Op
from synth.problem import Problem

if TYPE_CHECKING:
    import networkx as nx


def dependencies(problem: Problem, node: Op) -> Iterator[tuple[Op, int]]:
    """What an F, B or W node waits for, with the lag in ticks of each dependency.

    F waits for the F of the stages it needs, B for its own F and for the B of the stages that need
    it, W for its own B (zero-bubble paper, section 2, where each stage needs the one before).
    """
    stream = problem.stream(node.stream)
    route, stage = stream.route, node.stage
    if node.kind is Kind.F:
        for other in problem.before(stage):
            before = Op(Kind.F, node.microbatch, other, node.stream)
            yield before, problem.lag(route[other], route[stage])
    elif node.kind is Kind.B:
        yield node.sibling(Kind.F), 0
        for other in problem.behind(stage):
            behind = Op(Kind.B, node.microbatch, other, node.stream)
            yield behind, problem.lag(route[other], route[stage])
    else:
        yield node.sibling(Kind.B), 0


def all_nodes(problem: Problem) -> Iterator[Op]:
    """Every F, B and W node of a problem."""
    for stream in problem.streams:
        for microbatch in range(stream.microbatches):
            for stage in range(len(stream.route)):
                for kind in (Kind.F, Kind.B, Kind.W):
                    yield Op(kind, microbatch, stage, stream.name)


def build_graph(problem: Problem) -> nx.DiGraph[Op]:
    """The graph of all nodes.

    Node attributes: `kind`, `device`, `duration` (ticks). Edge attribute: `lag` (ticks between the
    end of one and the start of the other).
    """
    import networkx as nx  # slow to import, and only this function needs it

    graph: nx.DiGraph[Op] = nx.DiGraph()
    for node in all_nodes(problem):
        graph.add_node(
            node,
            kind=str(node.kind),
            device=problem.device(node),
            duration=problem.duration(node),
        )
    for node in all_nodes(problem):
        for before, lag in dependencies(problem, node):
            graph.add_edge(before, node, lag=lag)
    return graph
