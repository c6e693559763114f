# shellcheck shell=bash
# The health check, prolog and epilog of slurm/, installed as on a real cluster. Sourced by `cluster`.

inner_health-check() {  # BASELINE [--drain]: on the login host; a later call changes baseline and mode, and nothing else
  local lines
  lines=$("$(system_python)" -I "$HERE/../slurm/install" "$STATE/health" --baseline "$1" --state "$STATE/health-state" "${@:2}")
  echo "$lines"
  ! grep -q '^HealthCheckProgram=' "$STATE/slurm.conf" || return 0
  # every 2 s, so that nobody has to wait for it here
  sed 's/^HealthCheckInterval=.*/HealthCheckInterval=2/; s/,CYCLE$//' <<<"$lines" >>"$STATE/slurm.conf"
  scontrol reconfigure
}
