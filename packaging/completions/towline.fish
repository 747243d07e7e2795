# SPDX-License-Identifier: Apache-2.0
# Completion of towline and towlined for fish; installed under both names, where fish looks.
function __towline_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (@libdir@/complete $words "$current" 2>/dev/null)
        switch $line
            case '!files'
                __fish_complete_path "$current"
            case '!command *'
                # Of the command line fish has just the part before the cursor: what follows `towline run` is completed as if it
                # stood alone.
                set -l skip (string split ' ' -- $line)[2]
                set -l rest $words[(math $skip + 1)..-1]
                complete -C (string join ' ' -- (string escape -- $rest) "$current")
            case '*'
                echo $line
        end
    end
end
for name in towline towlined
    complete -c $name -f -a '(__towline_complete)'
end
