# Sourced by each finding. It makes an environment of Python in a temporary folder, which is removed at the end.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

install() {  # the packages, with their versions; a second call makes a new environment
  rm -rf "$folder/venv"
  "${PYTHON:-python3}" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_alone() {  # after install: the packages without those that they name, where few of them are imported
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"
}

expect() {  # run the program on stdin; it must print the lines of the first argument
  cat > "$folder/program.py"
  (cd "$folder" && venv/bin/python -W ignore program.py) > "$folder/printed"
  printf '%s\n' "$1" > "$folder/expected"
  if ! diff "$folder/expected" "$folder/printed"; then
    echo "changed: < as it was, > as it is"
    exit 1
  fi
  cat "$folder/printed"
}
