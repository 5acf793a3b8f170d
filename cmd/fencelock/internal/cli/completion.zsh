#compdef fencelock
# zsh completion for fencelock
_fencelock() {
    local -a found whole wholeshown open
    local line word meaning
    found=("${(@f)$(fencelock __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    if [[ $found[1] == ':command '* ]]; then
        local before=${found[1]#:command }
        shift $before words
        (( CURRENT -= before ))
        _normal
        return
    fi
    for line in "${found[@]}"; do
        [[ -n $line ]] || continue
        word=${line%%$'\t'*} meaning=${line#*$'\t'}
        if [[ $word == *[:/=] ]]; then
            open+=("$word")
        else
            whole+=("$word") wholeshown+=("$word${meaning:+  -- $meaning}")
        fi
    done
    (( $#whole )) && compadd -l -d wholeshown -a whole
    (( $#open )) && compadd -S '' -a open
}
compdef _fencelock fencelock
