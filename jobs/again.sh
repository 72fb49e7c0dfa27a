#!/bin/bash
# Runs a command again while that can help: at most three times, a minute apart, after exit code 1 and after a signal
# such as a kill; never after a mistake, a bound, a newer attempt or Ctrl-C. Ends with the exit code of the last run.
#   bash jobs/again.sh memagent answer --config job.yaml
# For schedulers that repeat any failure or none. SIGTERM ends the command and starts no other.

stopped="" child=""
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT

for run in 1 2 3; do
  "$@" &
  child=$!
  [ -z "$stopped" ] || kill -TERM "$child"
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do  # a signal to this script ended `wait`, not the command
    wait "$child"
    code=$?
  done
  child=""
  if [ -n "$stopped" ] || [ "$run" = 3 ] || [ "$code" = 130 ] || { [ "$code" != 1 ] && [ "$code" -le 128 ]; }; then
    exit "$code"
  fi
  echo "again.sh: run $run ended with exit code $code; it starts again in ${AGAIN_PAUSE_SECONDS:=60} s" >&2
  sleep "$AGAIN_PAUSE_SECONDS" &
  wait $!  # a signal ends the wait
  [ -z "$stopped" ] || exit 143
done
