"""Records of a run, and the only code that reads or writes records.

Strict on read: an unknown field, a missing field, NaN, a wrong type or version is a RecordError that names file and
field. Written once: a part file, then a link that fails when the name is taken. Only derived files may be replaced.
Observers (training) and the judge share records and nothing else. Units are in the names; GB is 10^9, GiB is 2^30.

base: what a record is, reading, writing · run: a run, its verdicts, answers.
Records of several runs are in report/campaigns.py, of a training in training/records, those of a room with the room.
"""

from bringup.kernel.records.base import *
from bringup.kernel.records.run import *
