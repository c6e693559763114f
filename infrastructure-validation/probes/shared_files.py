"""Files that several nodes look at: written through to the server, waited for, and what is mounted under them.

A client may keep what it once found missing. A stock NFS client does so while it keeps the folder's attributes, for 30
to 60 s (acdirmin, acdirmax in nfs(5)). So whether a folder is shared is asked under names that this node has not looked
for before. And nodes that wait for each other within a step wait for the content of a file that is there already:
opening it asks the server.
"""

import os
import time

import own_files
from software import mount_of

SOON_S = 5.0  # a name that nobody looked for before, and the content of a file that is opened
CACHED_S = 65.0  # a name that was looked for in vain, or removed: acdirmax, 60 s by default, and a margin
POLL_S, SLOW_POLL_S = 0.02, 0.2
CACHE_OPTIONS = {"ac", "noac", "cto", "nocto", "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax", "lookupcache"}
LOCK_OPTIONS = {"local_lock", "nolock", "flock", "noflock", "localflock"}


def put(path, text):
    with own_files.regular(path, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def text_of(path):
    """What the file holds now, or None."""
    try:
        with own_files.regular(path, "r") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return None


def is_there(path):
    """Path.exists raises on a stale handle, which must not end the answers about other nodes' files."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def is_gone(path):
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # a stale handle: the name still leads somewhere
        return False
    return False


def wait_until(paths, condition, patience):
    """{key: (seconds it took, whether it came to hold)}. condition(path, key); patience: seconds, or a function of the
    key. All are waited for together: one node that nobody sees must not cost each of its partners that time anew."""
    begun, waited, left = time.monotonic(), {}, dict(paths)
    patience_of = patience if callable(patience) else lambda key: patience
    while left:
        looked = time.monotonic() - begun
        for key, path in list(left.items()):
            if condition(path, key):
                waited[key] = (time.monotonic() - begun, True)
            elif looked > patience_of(key):
                waited[key] = (time.monotonic() - begun, False)
            else:
                continue
            del left[key]
        if left:
            time.sleep(POLL_S if looked < SOON_S else SLOW_POLL_S)
    return waited


def wait_for(paths, text=None, patience=SOON_S):
    """{key: (seconds it took, last text read)}: until each file is there and holds `text` (None: anything)."""
    contents = dict.fromkeys(paths)

    def there(path, key):
        contents[key] = text_of(path)
        return contents[key] is not None and text in (None, contents[key])

    waited = wait_until(paths, there, patience)
    return {key: (waited[key][0], contents[key]) for key in paths}


def mounted(folder):
    """(type, options) of the mounted filesystem that holds `folder`. Or None."""
    try:
        kind, _, options = mount_of(folder).split(" ")
    except FileNotFoundError:
        return None
    return kind, options.split(",")


def caches(folder):
    """For the reader: `nfs4, acdirmin=1,lookupcache=none`. Linux lists only what differs from the defaults."""
    mount = mounted(folder)
    if mount is None:
        return "below no mount"
    kind, options = mount
    cache_options = [option for option in options if option.partition("=")[0] in CACHE_OPTIONS | LOCK_OPTIONS]
    return "{}, {}".format(kind, ",".join(cache_options) or "no option for its caches")
