"""The (gate, subject) pairs of a run, planned from the requested nodes and ranks before anything runs."""

from collections import Counter
from collections.abc import Collection, Mapping

from bringup.kernel.plan import variants
from bringup.kernel.plan.catalogue import NONE, of_phase
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import Gates
from bringup.kernel.plan.profile import Profile
from bringup.kernel.plan.subjects import subjects
from bringup.kernel.records import NotApplicable, Run


def plan(
    phase: str,
    nodes: list[str],
    ranks_per_node: int,
    excluded: set[str],
    pair_rounds: int | None = None,
    own: Gates = NONE,
) -> dict[str, list[str]]:
    """Plan gate -> subjects, without the gates in `excluded` and those that need more nodes than there are.

    pair_rounds: of the pairwise phase; None: the default. own: checks of the site.
    """
    planned = {
        gate.id: subjects(gate, phase, nodes, ranks_per_node, pair_rounds)
        for gate in of_phase(phase, own)
        if gate.id not in excluded and len(nodes) >= gate.min_nodes and ranks_per_node >= gate.min_ranks_per_node
    }
    return {gate: listed for gate, listed in planned.items() if listed}


WHOLE_NODES = (
    "the partition gives whole nodes to a job (OverSubscribe=EXCLUSIVE or Exclusive=NODE, TOPO): two never share one"
)
SWITCHED = ("nccl.pair.topology", "nccl.pair.slowest.between")
ONE_LEAF = "Slurm's topology does not divide these nodes into several switches or blocks, one of which has two of them"
_OF_SHARING = {claim.id for claim in CLAIMS if claim.of_sharing}
NOT_SHARED = "the site file says that each job takes whole nodes (jobs_share_nodes): nothing has to keep two jobs apart"


def left_out(phase: str, whole_nodes: bool, jobs_share_nodes: bool = True) -> list[NotApplicable]:
    """Return gates that a setting of the partition makes meaningless, which is read when the run is opened; and where
    no two jobs of the site share a node, those whose claims are about sharing alone."""
    entries = []
    for gate in of_phase(phase):
        claims = {*gate.claims, *gate.bears_on}
        if whole_nodes and gate.shared_nodes:
            entries.append(NotApplicable(gate=gate.id, reason=WHOLE_NODES))
        elif not jobs_share_nodes and claims and claims <= _OF_SHARING:
            entries.append(NotApplicable(gate=gate.id, reason=NOT_SHARED))
    return entries


def without(phase: str, lacking: Collection[str], profile: Profile) -> list[NotApplicable]:
    """Return gates of NCCL's variants whose hardware discovery did not find. A network that is no RDMA device to the
    kernel (of Google's plugin) is one that the profile names."""
    transport = profile.expect.get("nccl.transport")
    has_other = transport is not None and bool({"gcp"} & set(transport.one_of or ()))
    absent = {name for name in lacking if not (name == variants.RDMA and has_other)}
    return [
        NotApplicable(gate=gate.id, reason=variants.LACKING[variant.needs])
        for gate in of_phase(phase)
        for variant in variants.VARIANTS
        if variant.needs in absent and gate.id.startswith(f"nccl.variant.{variant.name}.")
    ]


def without_switches(phase: str, leaves: Mapping[str, str] | None) -> list[NotApplicable]:
    """Return gates that compare switches, where Slurm knows none, or one for all, or none with two of these nodes.
    leaves: node -> switch; None: not known, so that it is asked again and judged."""
    sizes = Counter((leaves or {}).values())
    if leaves is None or (len(sizes) > 1 and max(sizes.values()) > 1):
        return []
    return [NotApplicable(gate=gate.id, reason=ONE_LEAF) for gate in of_phase(phase) if gate.id in SWITCHED]


def not_applicable(run: Run, declared: list[NotApplicable]) -> list[NotApplicable]:
    """Return what the profile excludes, and what the partition's settings exclude."""
    by_gate = {entry.gate: entry for entry in [*run.left_out, *excluded_here(run.phase, declared)]}
    return list(by_gate.values())


def excluded_here(phase: str, not_applicable: list[NotApplicable]) -> list[NotApplicable]:
    """Return the profile's exclusions of gates of this phase."""
    of_this_phase = {gate.id for gate in of_phase(phase)}
    return [entry for entry in not_applicable if entry.gate in of_this_phase]
