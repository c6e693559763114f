# shellcheck shell=bash
# Where the Python environment is, in one place for scripts, training/env.sh, the Makefile and bringup doctor. Sourced, or run:
#
#   bash venv.sh             print the folder of the environment of this machine
#   bash venv.sh --python    print a Python from 3.11 on to make it with (PYTHON, or one on the PATH), or say how to get one
#
# The folder is BRINGUP_VENV, else `venv` of the site file, else .venv in the checkout. Where it was made for another architecture
# (make venv writes that down), -aarch64 or -x86_64 is added: login hosts and nodes may differ.

venv_folder() {
  local folder=${BRINGUP_VENV:-}
  [[ -n $folder ]] || folder=$(venv_of_site)
  folder=${folder:-.venv}
  if made_for_another "$folder"; then
    folder=${folder%-x86_64} folder=${folder%-aarch64}
    ! made_for_another "$folder" || folder+=-$(uname -m)
  fi
  printf '%s\n' "$folder"
}

made_for_another() { # folder
  [[ -r $1/architecture && $(<"$1/architecture") != $(uname -m) ]]
}

venv_of_site() { # `bringup site` says what is wrong with the file
  local file=${BRINGUP_SITE:-} line
  [[ -z $file || $file == *.yaml || $file == *.yml ]] || file=validation/profiles/$file.site.yaml
  [[ -n $file && -r $file ]] || return 0
  line=$(grep -m1 '^venv:' "$file") || return 0
  line=${line#venv:} line=${line%% #*}
  read -r line <<<"$line" # without the blanks around it
  line=${line#[\"\']}
  printf '%s\n' "${line%[\"\']}"
}

find_python() {
  local name names=(python3 python3.{11..14})
  [[ -z ${PYTHON:-} ]] || names=("$PYTHON")
  for name in "${names[@]}"; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$name"
      return
    fi
  done
  printf '%s\n' "bringup needs Python 3.11 or newer with venv, and ${PYTHON:-none on the PATH} is not one; without root, beside this folder: \
conda create --yes --prefix ../python python=3.12 && make venv PYTHON=../python/bin/python3 (or uv: UV_PYTHON_INSTALL_DIR=../python \
uv python install 3.12 && make venv PYTHON=\"\$(echo ../python/*/bin/python3.12)\")" >&2
  return 1
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  if [[ ${1:-} == --python ]]; then find_python; else venv_folder; fi
fi
