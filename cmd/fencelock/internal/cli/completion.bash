# bash completion for fencelock
_fencelock() {
    local IFS=$'\n' words=() at=() found=() i word rest=${COMP_LINE:0:COMP_POINT} trimmed cur before=
    # Bash breaks words at : and =, which names and URLs contain: join what stands together.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        ((i == COMP_CWORD)) && word=$trimmed
        if ((i > 0)) && [[ $trimmed == "$rest" ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
            at+=("$i")
        fi
        rest=${trimmed#"$word"}
    done
    cur=${words[${#words[@]}-1]}
    while read -r word; do
        found+=("$word")
    done < <(fencelock __complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    if [[ ${found[0]} == ':command '* ]]; then
        i=${at[${found[0]#:command }]}
        if declare -F _command_offset >/dev/null; then # of the package bash-completion
            unset IFS
            _command_offset "$i"
            return
        fi
        compopt -o filenames 2>/dev/null
        if ((i == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -f -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi
        return
    fi
    # What stands before the last : or = is in the line already.
    [[ $cur == *[:=]* ]] && before=${cur%"${cur##*[:=]}"}
    for word in "${found[@]}"; do
        word=${word%%$'\t'*}
        [[ $word == *[:/=] ]] && compopt -o nospace 2>/dev/null
        COMPREPLY+=("${word#"$before"}")
    done
}
complete -F _fencelock fencelock
