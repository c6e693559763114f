# shellcheck shell=bash
# The health check, prolog and epilog of slurm/, installed as on a real cluster. Sourced by `cluster`.

inner_health-check() {  # BASELINE [--drain]: on the login host; a later call changes baseline and mode, and nothing else
  local lines
  # `install` takes only what nobody else can change, and a checkout may lie anywhere: what it needs is copied to a folder of ours
  rm -rf "$STATE/health-source"
  mkdir -m 700 "$STATE/health-source"
  cp -R "$HERE/../slurm" "$HERE/../probes" "$1" "$STATE/health-source/"
  chmod -R go-w "$STATE/health-source"
  lines=$("$(system_python)" -I "$STATE/health-source/slurm/install" "$STATE/health" \
    --baseline "$STATE/health-source/${1##*/}" --state "$STATE/health-state" "${@:2}")
  echo "$lines"
  ! grep -q '^HealthCheckProgram=' "$STATE/slurm.conf" || return 0
  # every 2 s, so that nobody has to wait for it here
  sed 's/^HealthCheckInterval=.*/HealthCheckInterval=2/; s/,CYCLE$//' <<<"$lines" >>"$STATE/slurm.conf"
  scontrol reconfigure
}
