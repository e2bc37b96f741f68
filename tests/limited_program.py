"""Run `localjudge` where no file can have more than a number of bytes, as on a full disk.

python limited_program.py BYTES ARGUMENTS…
"""

from __future__ import annotations

import resource
import sys

from localjudge.cli import main

if __name__ == "__main__":
    room = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    main()
