"""Every record that goes to disk, and the only code that reads or writes them.

Strict on read: an unknown field, a missing field, NaN, a wrong type or version is a RecordError that names file and
field. Written once: a part file, then a link that fails when the name is taken. Only derived files may be replaced.
Observers (training) and the judge share this package and nothing else. Units are in the names; GB is 10^9, GiB is 2^30.

base: what a record is, reading, writing · run: a run, its verdicts, answers · campaign: playbook, sweep, drills ·
advice: what is computed before a training · training · summary: the head of its metrics · daily
"""

from bringup.records.advice import *
from bringup.records.base import *
from bringup.records.campaign import *
from bringup.records.daily import *
from bringup.records.run import *
from bringup.records.summary import *
from bringup.records.training import *
