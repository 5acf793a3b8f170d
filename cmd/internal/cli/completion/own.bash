
_fencelock() {
    local i
    for ((i = 1; i <= COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == *[$'$\x60(']* ]] && return
        [[ ${COMP_WORDS[i]} == -- ]] && ((i < COMP_CWORD)) && { _command_offset $((i + 1)); return; }
    done
    __start_fencelock
}
complete -o default -F _fencelock fencelock
