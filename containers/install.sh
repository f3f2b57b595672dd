#!/bin/sh
# Installs linkscope below /opt/linkscope from Debian packages and the wheels in the folder $1. Runs as root in an image.
set -eu
export DEBIAN_FRONTEND=noninteractive
# Bytecode then names the content of its source, not the time, which an image sets to 0. Otherwise each start compiles all.
export SOURCE_DATE_EPOCH=0
apt-get update
apt-get install --yes --no-install-recommends \
  python3 python3-venv python3-numpy python3-msgspec python3-rich python3-jinja2 libstdc++6 numactl pciutils
python3 -m venv --system-site-packages /opt/linkscope
/opt/linkscope/bin/python -m pip install --no-index --no-deps "$1"/*.whl
mkdir -p /data
chmod 1777 /data # users of any number write their run files there
rm -rf /var/lib/apt/lists/* /var/cache/apt/*
/opt/linkscope/bin/linkscope list suites >/dev/null # fails if a package is missing
