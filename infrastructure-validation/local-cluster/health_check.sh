# shellcheck shell=bash
# The health check of slurm/, installed as on a real cluster. Sourced by `cluster`.

inner_health-check() {  # BASELINE: on the login host; a later call changes the baseline, and nothing else
  local lines
  # `install` takes only what nobody else can change, and a checkout may lie anywhere: what it needs is copied to a folder of ours
  local source=$STATE/health-source
  rm -rf "$source"
  mkdir -m 700 "$source"
  (cd "$CHECKOUT" && cp -R --parents infrastructure-validation/{slurm,probes} "$source")
  cp "$1" "$source/"
  chmod -R go-w "$source"
  lines=$("$(system_python)" -I "$source/infrastructure-validation/slurm/install" "$STATE/health" \
    --baseline "$source/${1##*/}" --state "$STATE/health-state")
  echo "$lines"
  ! grep -q '^HealthCheckProgram=' "$STATE/slurm.conf" || return 0
  # every 10 s, so that nobody has to wait long for it here; it takes at most 9, and slurmd starts the next all the same
  sed 's/^HealthCheckInterval=.*/HealthCheckInterval=10/; s/,CYCLE$//' <<<"$lines" >>"$STATE/slurm.conf"
  scontrol reconfigure
}
