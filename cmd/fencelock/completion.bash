# bash completion for fencelock
_fencelock() {
    local cur=${COMP_WORDS[COMP_CWORD]} cmd='' words='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            COMPREPLY=($(compgen -c -f -- "$cur"))
            return
            ;;
        --url) ((i++)) ;;
        -*) ;;
        *) [[ $cmd ]] || cmd=${COMP_WORDS[i]} ;;
        esac
    done
    case $cmd in
        '') words='@COMMANDS@' ;;
@CASES@
    esac
    case $cmd in
    @NAMED@) [[ $cur == -* ]] || words=$(@LOCKS@) ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _fencelock fencelock
