"""A module whose import does not end soon."""

import time

time.sleep(60)
