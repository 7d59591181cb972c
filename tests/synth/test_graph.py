"""The graph of small pipelines, edge by edge."""

from __future__ import annotations

import networkx as nx
import pytest

from synth.graph import all_nodes, build_graph, dependencies
from synth.op import Kind, parse_op
from synth.problem import make_problem


def edges(graph: nx.DiGraph) -> set[str]:
    """`F0@0 F0@1 2` for an edge with a lag of 2 ticks."""
    return {f"{before} {after} {lag}" for before, after, lag in graph.edges(data="lag")}


def test_two_stages() -> None:
    graph = build_graph(make_problem(2, 1, costs=(1, 2, 3), comm=4))
    assert edges(graph) == {
        "F0@0 F0@1 4",
        "F0@0 B0@0 0",
        "F0@1 B0@1 0",
        "B0@1 B0@0 4",
        "B0@0 W0@0 0",
        "B0@1 W0@1 0",
    }
    assert {str(node): tuple(data.values()) for node, data in graph.nodes(data=True)} == {
        "F0@0": ("F", 0, 1),
        "B0@0": ("B", 0, 2),
        "W0@0": ("W", 0, 3),
        "F0@1": ("F", 1, 1),
        "B0@1": ("B", 1, 2),
        "W0@1": ("W", 1, 3),
    }


def test_no_lag_between_chunks_of_one_device() -> None:
    graph = build_graph(make_problem(2, 1, placement="v", comm=1))
    hops = {edge for edge in edges(graph) if not edge.endswith(" 0")}
    assert hops == {"F0@0 F0@1 2", "F0@2 F0@3 2", "B0@3 B0@2 2", "B0@1 B0@0 2"}
    assert "F0@1 F0@2 0" in edges(graph)


def test_streams_are_apart() -> None:
    graph = build_graph(make_problem(2, 3, placement="bidirectional"))
    names = {node.stream for node in graph}
    parts = list(nx.weakly_connected_components(graph))
    assert names == {"down", "up"}
    assert sorted(len(part) for part in parts) == [6, 6, 6]
    assert all(len({(node.stream, node.microbatch) for node in part}) == 1 for part in parts)
    assert graph.nodes[parse_op("F0@0/up")]["device"] == 1


@pytest.mark.parametrize("placement", ["linear", "v", "interleaved:3", "wave:2", "bidirectional"])
@pytest.mark.parametrize(("devices", "microbatches"), [(1, 2), (3, 4)])
def test_size_and_order(placement: str, devices: int, microbatches: int) -> None:
    """Per micro-batch and S stages: 3S nodes, S-1 edges down, S-1 up, S from F to B, S on to W."""
    problem = make_problem(devices, microbatches, placement=placement)
    graph = build_graph(problem)
    stages = len(problem.stages)
    assert graph.number_of_nodes() == 3 * stages * microbatches
    assert graph.number_of_edges() == (4 * stages - 2) * microbatches
    assert nx.is_directed_acyclic_graph(graph)
    # F of every stage, then B of every stage, then W.
    assert nx.dag_longest_path_length(graph, weight="none", default_weight=1) == 2 * stages
    sources = [str(node) for node, degree in graph.in_degree if degree == 0]
    assert len(sources) == microbatches
    assert all("@0" in source for source in sources)


def test_dependencies_come_from_the_graph_alone() -> None:
    problem = make_problem(3, 2, comm=1)
    graph = build_graph(problem)
    for node in all_nodes(problem):
        found = dict(dependencies(problem, node))
        assert found == {before: graph.edges[before, node]["lag"] for before in graph.pred[node]}


def test_all_nodes_are_named_once() -> None:
    nodes = list(all_nodes(make_problem(2, 2)))
    assert len(nodes) == len(set(nodes)) == 12
    assert {node.kind for node in nodes} == {Kind.F, Kind.B, Kind.W}
    assert [str(node) for node in nodes[:4]] == ["F0@0", "B0@0", "W0@0", "F0@1"]
