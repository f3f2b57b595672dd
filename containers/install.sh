#!/bin/sh
# Installs linkscope below /opt/linkscope from Debian packages and the wheels in the folder $1. Runs as root in an image.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends \
  python3 python3-venv python3-numpy python3-msgspec python3-rich python3-jinja2 libstdc++6 numactl pciutils
python3 -m venv --system-site-packages /opt/linkscope
/opt/linkscope/bin/python -m pip install --no-index --no-deps "$1"/*.whl
mkdir -p /data
rm -rf /var/lib/apt/lists/* /var/cache/apt/*
/opt/linkscope/bin/linkscope list suites >/dev/null # fails if a package is missing
