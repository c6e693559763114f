"""The verb of the soak."""

from bringup import verb

VERBS: dict[str, dict[str, verb.Verb]] = {
    verb.RUN: {
        "soak": verb.verb(
            "the phases in rotation for hours: how rare are faults?",
            verb.arg("phases", nargs="*", metavar="PHASE", help="default: discovery to pairs, and trainings in turn"),
            verb.number("--hours", "H", "end after so many hours; a pause before --resume is none", kind=verb.positive),
            verb.several(
                "--until",
                "KIND=HOURS",
                "end as soon as it is known, with 95 %%, that a fault of this kind comes at most once in so many hours "
                "of such a part: GPU=1000. Kinds: GPU, link, node, storage, Slurm, training",
            ),
            verb.number("--nodes", "NODES", "how many (default: all nodes of the default partition)"),
            verb.NODELIST,
            verb.NAME_OR_PATH,
            verb.arg("--resume", metavar="SOAK", help="go on with an earlier soak, by name; last: the newest one"),
            description="One job after the other, all nodes at once. A node that fails a check of its own is left out, "
            "and the rest goes on. Exit code: 0 no fault, 1 a fault or a drift, 2 we could not tell. docs/soak.md",
            starts_scripts=True,
            example="bringup soak --hours 72 --until GPU=10000",
        ),
    },
}
