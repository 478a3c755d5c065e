"""The command line, as ``python -m attnspec``."""

import sys
from importlib import import_module

if __name__ == "__main__":
    # Imported by name, because the standard does not depend on the conformance suite.
    main = import_module("attnspec.conformance.cli.main").main
    sys.exit(main(prog_name="attnspec"))
