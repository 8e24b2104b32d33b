"""Which test opened a socket that nobody closed: the warning comes with a later test, when the socket is collected."""

import os
import re
import socket
from contextlib import suppress

import pytest

UNCLOSED = re.compile(r"unclosed <socket[^>]*laddr=\('127\.0\.0\.1', (\d+)\)")
_opened = {}
_connect = socket.socket.connect


def _noting(self, address):
    try:
        return _connect(self, address)
    finally:
        with suppress(OSError, IndexError):  # it is closed, or of another family
            _opened[self.getsockname()[1]] = os.environ.get("PYTEST_CURRENT_TEST", "")


socket.socket.connect = _noting


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    for port in UNCLOSED.findall(report.longreprtext) if report.failed else ():
        report.sections.append(("the socket was opened by", _opened.get(int(port), "nobody who is known")))
    return report
