"""The command ``asof``."""

from __future__ import annotations

import signal
import sys

from asof import _asof


def main() -> int:
    """Runs the command line."""
    # A long command does not run Python code: it would not notice Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    name = "asof" if sys.argv[0].endswith("__main__.py") else sys.argv[0]
    return _asof.main([name, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
