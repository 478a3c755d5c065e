"""``python -m attnspec.backends.untrusted.launch COMMAND``: confine this process, and become a program.

What the operating system confines stays confined in the program and in all that it starts.
"""

import os
import sys

from attnspec.backends.untrusted.confine import by_system, end_with_parent
from attnspec.backends.untrusted.hidden import guarded_places, hidden_places, plain_environment


def main() -> None:
    """Become the program whose command follows."""
    folders, _ = hidden_places()
    end_with_parent()
    by_system(list(folders), list(guarded_places()))
    os.execvpe(sys.argv[1], sys.argv[1:], plain_environment(os.environ))  # noqa: S606 - the command is the user's


if __name__ == "__main__":
    main()
