#!/usr/bin/env python3
"""Copy the JSON of nccl-tests without the environment that it lists. What is not JSON is not copied.

Run: python3 without_environment.py FILE INTO
"""

import json
import sys
from pathlib import Path


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: without_environment.py FILE INTO")
    try:
        document = json.loads(Path(sys.argv[1]).read_text())
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: not kept, it is no JSON: {error}")
    document.pop("env", None)
    Path(sys.argv[2]).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
