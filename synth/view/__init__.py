"""Pages to look at schedules with: one self-contained HTML file each, no network."""

from synth.view.page import playground_page, view_page
from synth.view.payload import payload

__all__ = ["payload", "playground_page", "view_page"]
