# Debian's completions, as a user types command lines. Takes how many rounds it goes; without an
# end otherwise.
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
source /usr/share/bash-completion/bash_completion
rounds=${1:--1}
declare -A functions
for command in tar find dd chmod kill cpio chown mount rsync; do
  _completion_loader "$command" 2>/dev/null
  found=$(complete -p "$command")
  found=${found#*-F }
  functions[$command]=${found%% *}
done
# Completes the last of its arguments, as bash does when the tabulator is pressed.
tab() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMPREPLY=()
  "${functions[$1]}" "$1" "${@: -1}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
  found=$((found + ${#COMPREPLY[@]}))
}
while ((rounds-- != 0)); do
  found=0
  tab tar -x
  tab tar xf /et
  tab find / -na
  tab dd if=/etc/pa
  tab chmod u+
  tab kill -S
  tab cpio --
  tab chown --
  tab mount -o
  tab rsync -
  echo "$found"
done >/dev/null
