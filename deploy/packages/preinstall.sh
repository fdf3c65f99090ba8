#!/bin/sh
# Before the files: some belong to this group.
set -e
getent group dbcontroller >/dev/null || groupadd --system dbcontroller
