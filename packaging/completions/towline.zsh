#compdef towline towlined
# SPDX-License-Identifier: Apache-2.0
# Completion of towline and towlined for zsh; installed as site-functions/_towline.
local line
local -a candidates
for line in "${(@f)$(@libdir@/complete "${(@)words[1,CURRENT]}" 2>/dev/null)}"; do
    case $line in
        '') ;;
        '!files') _files ;;
        '!command '*)
            shift "${line#* }" words
            ((CURRENT -= ${line#* }))
            _normal
            return
            ;;
        *) candidates+=("${${line//:/\\:}/$'\t'/:}") ;;
    esac
done
((!$#candidates)) || _describe -o 'towline' candidates
