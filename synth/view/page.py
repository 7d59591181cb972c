"""Pages: the assets of this package put together, with the data in their middle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

_COMMON = (
    "model.js",
    "memory.js",
    "colours.js",
    "paint.js",
    "frame.js",
    "timeline.js",
    "card.js",
    "keys.js",
    "legend.js",
    "print.js",
)
_VIEW = (*_COMMON, "view.js")
_PLAYGROUND = (*_COMMON, "simulate.js", "families.js", "frontier.js", "library.js", "playground.js")


def view_page(schedules: Sequence[Mapping[str, Any]], title: str) -> str:
    """The page that shows schedules, given as payloads, on one time axis."""
    return _page("view", _VIEW, {"schedules": list(schedules)}, title)


def playground_page(library: Sequence[Mapping[str, Any]]) -> str:
    """The page that makes handcrafted schedules live, beside those of a library of solved ones."""
    remark = "handcrafted schedules, simulated here"
    data = {"library": list(library)}
    return _page("playground", _PLAYGROUND, data, "pipesynth playground", remark)


def _page(
    kind: str, scripts: Sequence[str], data: Mapping[str, Any], title: str, remark: str = ""
) -> str:
    script = "\n".join(_asset(name) for name in scripts)
    return Template(_asset("page.html")).substitute(
        kind=kind,
        title=_escaped(title),
        remark=_escaped(remark),
        style=_asset("page.css"),
        content=_asset(f"{kind}.html"),
        data=_inert(json.dumps(data, separators=(",", ":"), allow_nan=False)),
        script=f'"use strict";\n(() => {{\n{script}\n}})();',
    )


def _asset(name: str) -> str:
    return (files("synth.view") / "assets" / name).read_text(encoding="utf-8")


def _inert(text: str) -> str:
    """JSON that cannot end the script element it stands in."""
    return text.replace("<", "\\u003c")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
