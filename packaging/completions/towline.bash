# SPDX-License-Identifier: Apache-2.0
# Completion of towline and towlined for bash; installed under both names, where bash-completion looks.
_towline()
{
    local line words=() current=${COMP_WORDS[COMP_CWORD]}
    while IFS= read -r line; do
        case $line in
            '!files') compopt -o default -o filenames && mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
            '!command '*)
                if declare -F _command_offset >/dev/null; then
                    _command_offset "${line#* }"
                elif ((COMP_CWORD == ${line#* })); then
                    compopt -o default && mapfile -t COMPREPLY < <(compgen -c -- "$current")
                else
                    compopt -o default
                fi
                return
                ;;
            *) words+=("${line%%$'\t'*}") ;;
        esac
    done < <(@libdir@/complete "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "${words[*]}" -- "$current")
} && complete -F _towline towline towlined
