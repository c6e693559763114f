# shellcheck shell=bash
# What health-check, prolog and epilog have in common: how hook.py is started, and what Slurm hears. Sourced by them.
#
# Only exit code 3 of hook.py, which Python never gives by itself, becomes 1: a fault was found, and the node is drained
# for it. All else ends with 0, and the syslog has the reason: hooks that do not work must take no node out of service.
# shellcheck disable=SC2154 # hook and here are its caller's

if [ $# -gt 0 ]; then # by hand
  exec python3 -I -B "$here/hook.py" "$hook" "$@"
fi
[ ! -e "$here/off" ] || exit 0

seconds=9 # hook.py wants less; Slurm gives a prolog more (BatchStartTimeout: 10 s; PrologEpilogTimeout)
answer=0 code=124 child='' last=''
trap 'exit "$answer"' EXIT
trap '[ -z "$child" ] || kill -TERM "$child" 2>/dev/null; exit' TERM INT HUP

exec 3< <(exec python3 -I -B "$here/hook.py" "$hook" 2>&1)
child=$!
until ((SECONDS >= seconds)); do
  if IFS= read -r -t "$((seconds - SECONDS))" line <&3; then
    last=$line
  elif [ $? -le 128 ]; then # the end of its output
    wait "$child" && code=0 || code=$?
    break
  fi
done
[ -z "$last" ] || echo "$last" >&2
case $code in
  0) ;;
  3) answer=1 ;;
  *)
    if [ "$code" = 124 ]; then
      kill -TERM "$child" 2>/dev/null
      read -r -t 0.5 <&3 || kill -KILL "$child" 2>/dev/null
      last="no end within $seconds s"
    fi
    why="could not tell: hook.py ended with $code: $last; to look: $here/health-check --show"
    echo "bringup-$hook: $why" >&2
    # not waited for: a log that takes nothing holds up no job
    ! command -v logger >/dev/null || logger -t "bringup-$hook" -- "$why" </dev/null >/dev/null 2>&1 3<&- &
    ;;
esac
exit
