#!/bin/sh
# dpkg says remove, rpm 0. Both say something else before an upgrade.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
  systemctl disable --now dbcontroller.service dbcontroller-proxy.service
fi
