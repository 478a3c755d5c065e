"""The command line, as ``python -m attnspec``."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # By its name: what the standard is does not depend on who judges by it.
    main = import_module("attnspec.conformance.cli.main").main
    sys.exit(main(prog_name="attnspec"))
