#!/usr/bin/env bash
# setup.sh VENV   makes the virtual environment with the pinned versions; CPU PyTorch where there is no NVIDIA GPU.
set -euo pipefail
venv=${1:?usage: setup.sh VENV}
python=${PYTHON:-python3}
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

"$python" -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v <= (3, 13))' ||
  { echo "setup.sh: $("$python" --version) found; Python 3.11 to 3.13 is needed (PYTHON=python3.12 make ...)" >&2; exit 1; }
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
if ! pip show -q torch 2>/dev/null; then
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
    pip install -q -c constraints.txt torch
  else
    pip install -q --retries 0 --timeout 10 --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 2>/dev/null ||
      pip install -q -c constraints.txt torch
  fi
fi
# The packages of the project are folders of the checkout: only its dependencies are installed.
"$venv/bin/python" - >"$venv/requirements.txt" <<'PY'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print("\n".join([*project["dependencies"], *(r for group in project["optional-dependencies"].values() for r in group)]))
PY
pip install -q -c constraints.txt -r "$venv/requirements.txt"
