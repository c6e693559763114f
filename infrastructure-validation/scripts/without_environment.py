#!/usr/bin/env python3
"""Remove the environment from the JSON of nccl-tests: it holds every variable, tokens too. A file that is not JSON is
deleted.

The file is changed in place.

Run: python3 without_environment.py FILE
"""

import json
import sys
from pathlib import Path


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: without_environment.py FILE")
    path = Path(sys.argv[1])
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        path.unlink()  # cut off in the middle: whatever it holds may be a secret
        sys.exit(f"{path}: removed, it is no JSON: {error}")
    document.pop("env", None)
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
