#compdef fencelock
# zsh completion for fencelock
_fencelock() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    if (( ${words[(I)--]} )) && (( ${words[(I)--]} < CURRENT )); then
        _command_names -e
        _files
        return
    fi
    case $words[2] in
    @NAMED@)
        if [[ $words[CURRENT] != -* ]]; then
            compadd -- ${(f)"$(@LOCKS@)"}
            return
        fi
        ;;
    esac
    case $words[2] in
@CASES@
    esac
}
compdef _fencelock fencelock
