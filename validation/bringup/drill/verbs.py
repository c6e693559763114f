"""The verb that makes faults on purpose."""

from bringup.verb import RUN, Verb, arg, flag, path, profile_argument, resume, verb

VERBS: dict[str, dict[str, Verb]] = {
    RUN: {
        "drill": verb(
            "make faults on purpose, and see whether they are found",
            flag("--list", "print the catalogue and make nothing"),
            path("--checks", "the drills of a site's own checks, in place of the catalogue"),
            arg("--only", nargs="+", metavar="ID", default=[], help="these drills"),
            flag("--anywhere", "on the cluster you are on: those that stay inside your own jobs, and no other"),
            resume("drill", "continue an earlier drill run"),
            profile_argument("with --anywhere: of this cluster"),
            description="The whole catalogue, on a local cluster that is started and ended for it. "
            "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
            starts_scripts=True,
            example="bringup drill --anywhere",
        ),
    },
}
