# shellcheck shell=bash
# Where the Python environment is, in one place for scripts, training/env.sh, the Makefile and bringup doctor. Sourced, or run:
#
#   bash venv.sh             print the folder of the environment of this machine
#   bash venv.sh --python    print a Python to make it with (PYTHON, or one on the PATH): from 3.11 on, otherwise 3.10; or say how to
#                            get one
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
  local name minor names=(python3 python3.{11..14} python3.10)
  [[ -z ${PYTHON:-} ]] || names=("$PYTHON")
  for minor in 11 10; do # 3.10 is enough for make venv-light
    for name in "${names[@]}"; do
      if "$name" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $minor))" 2>/dev/null; then
        printf '%s\n' "$name"
        return
      fi
    done
  done
  need_python "3.10 or newer with venv"
}

# pip writes the path into shell lines and into a file that Python reads before it knows that names are UTF-8.
need_plain_path() {
  local LC_ALL=C
  [[ $PWD == *[!\ -~]* || $PWD == *[\"\$\`\\]* ]] || return 0
  printf '%s\n' "bringup: the path of this checkout, $PWD, has a letter outside of ASCII or one of \" \$ \` \\, which breaks what pip \
writes; move it" >&2
  return 1
}

need_python() { # VERSION: what is needed
  printf '%s\n' "bringup needs Python $1, and ${PYTHON:-none on the PATH} is not one; without root, beside this folder: \
conda create --yes --prefix ../python python=3.12 && make venv PYTHON=../python/bin/python3 (or uv: UV_PYTHON_INSTALL_DIR=../python \
uv python install 3.12 && make venv PYTHON=\"\$(echo ../python/*/bin/python3.12)\")" >&2
  return 1
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  case ${1:-} in
    --python) need_plain_path && find_python ;;
    --need) need_python "$2" ;;
    *) venv_folder ;;
  esac
fi
