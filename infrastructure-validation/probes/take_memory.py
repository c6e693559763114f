#!/usr/bin/env python3
"""Take MIB of memory and touch every page. A job that requested less must be ended before this prints its last line.

Run: sbatch --mem=100M --wrap 'exec python3 take_memory.py 300'
"""

import sys
import time

MIB = 2**20


def main():
    taken = bytearray(int(sys.argv[1]) * MIB)
    for offset in range(0, len(taken), 4096):
        taken[offset] = 1
    time.sleep(5)  # a limit that is enforced by polling gets its chance
    print(f"took {len(taken) // MIB} MiB and was not stopped")


if __name__ == "__main__":
    main()
