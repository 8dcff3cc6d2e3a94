#!/bin/sh
# step.sh LOG NAME COMMAND: runs a step of an installation, and prints its name and its seconds.
#
# What the command prints is added to LOG, and shown only where it fails. Exits with its status.
log=$1 name=$2 command=$3
begun=$(date +%s)

mkdir -p "$(dirname "$log")"
printf '\n%s: %s\n' "$name" "$command" >> "$log"
before=$(wc -c < "$log")
printf '%s … ' "$name"

sh -c "$command" >> "$log" 2>&1
status=$?

if [ $status -eq 0 ]; then
    echo "$(($(date +%s) - begun)) s"
else
    echo "failed after $(($(date +%s) - begun)) s"
    tail -c +$((before + 1)) "$log" >&2
    echo "$name: exit status $status; $log has this output" >&2
fi
exit $status
