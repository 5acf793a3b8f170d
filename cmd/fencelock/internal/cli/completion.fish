# fish completion for fencelock
function __fencelock_complete
    set -l words (commandline -opc)
    set -l found (fencelock __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    if string match -q ':command *' -- "$found[1]"
        set -l before (string replace ':command ' '' -- $found[1])
        set -l typed (string escape -- $words[(math $before + 1)..-1]) (commandline -ct)
        complete -C (string join ' ' -- $typed)
        return
    end
    string join \n -- $found
end
complete -c fencelock -f -a '(__fencelock_complete)'
