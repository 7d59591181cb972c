"""Headless Chromium, where there is one."""

import os
import shutil

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser():
    """The Chromium that CHROMIUM names, or that is installed, or that Playwright downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as context:
        path = path or context.chromium.executable_path
        if not os.path.exists(path):
            pytest.skip("no Chromium found; install it, or name it in CHROMIUM")
        started = context.chromium.launch(executable_path=path, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a page's text; whatever it logs or asks the network for fails the test."""
    complaints = []
    contexts = []

    def opened(html, **options):
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                complaints.append(request.url)
                if not request.url.startswith(("file:", "data:"))
                else None
            ),
        )
        page.goto(path.as_uri())
        page.wait_for_function("window.pipesynth !== undefined")
        page.wait_for_timeout(100)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
