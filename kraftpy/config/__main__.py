"""`python -m kraftpy.config > docs/configuration.md` writes the table of all keys."""

from __future__ import annotations

import sys

from kraftpy.config.document import document

if __name__ == "__main__":
    sys.stdout.write(document())
