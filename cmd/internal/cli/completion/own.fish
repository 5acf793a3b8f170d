
function __fencelock_perform_completion
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    if set -l at (contains -i -- -- $words)
        complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-1]) $typed)
        echo :4
        return
    end
    set -l flag (string match -r -- '^-.*=' $typed)
    fencelock __complete $words[2..-1] $typed 2>/dev/null | string replace -r '^(?=[^:])' -- "$flag"
end
