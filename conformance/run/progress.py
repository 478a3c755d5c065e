"""Show the progress of a run: on one line of a terminal, or on occasional lines of a log.

It does not say how much time is left. The last cases take a hundred times as long as the first, and many of
them may be unsupported, so no estimate from the judged cases holds.
"""

import shutil
import sys
import time
from dataclasses import dataclass, field

#: Seconds between updates, on a terminal and in a log.
_ON_TERMINAL, _IN_LOG = 0.2, 30.0
#: Maximum length of a name, so that the numbers after it fit on the line.
_MOST = 30


@dataclass
class Progress:
    """The progress of one run."""

    name: str
    planned: int
    judged: int = 0
    failing: int = 0
    _started: float = field(default_factory=time.monotonic)
    _said: float = field(default_factory=time.monotonic)
    _shown: int = 0

    def add(self, *, failing: bool) -> None:
        """Count a verdict, and show the progress if an update is due."""
        self.judged += 1
        self.failing += failing
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._said < (_ON_TERMINAL if terminal else _IN_LOG):
            return
        self._said = now
        if terminal:
            self._show(self.text(now - self._started)[: shutil.get_terminal_size().columns - 1])
        else:
            sys.stderr.write(self.text(now - self._started) + "\n")
            sys.stderr.flush()

    def text(self, seconds: float) -> str:
        """Return the text of the progress after some seconds."""
        name = " ".join(self.name.split())
        name = name if len(name) <= _MOST else f"{name[: _MOST - 3]}..."
        failing = f", {self.failing} failing" if self.failing else ""
        passed = f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return f"{name}: {self.judged} of {self.planned} cases judged{failing}, after {passed}"

    def end(self) -> None:
        """Clear the line of a terminal, if there is one."""
        if self._shown:
            self._show("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _show(self, text: str) -> None:
        """Overwrite the previous line, which may have been longer."""
        sys.stderr.write(f"\r{text:{self._shown}}")
        sys.stderr.flush()
        self._shown = len(text)
