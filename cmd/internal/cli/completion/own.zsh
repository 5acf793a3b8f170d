
_fencelock_line() {
    local i=${words[(ie)--]}
    [[ ${words[1,i]} == *[$'$\x60(']* ]] && return 1
    (( i < CURRENT )) || { _fencelock; return; }
    shift i words
    (( CURRENT -= i ))
    _normal
}
compdef _fencelock_line fencelock
