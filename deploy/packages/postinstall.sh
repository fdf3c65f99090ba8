#!/bin/sh
# Also after a removal. Nothing is started: a service needs its configuration first. After an upgrade,
# restart one controller after the other.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
