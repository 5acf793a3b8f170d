package termtext

import "strings"

// harmless are the characters that need no quotes in a shell.
const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"

// ShellWord returns s as one word of a shell, quoted only if necessary.
func ShellWord(s string) string {
	if strings.Trim(s, harmless) == "" {
		return s
	}
	return ShellQuote(s)
}

// ShellQuote returns s as one single-quoted word of bash, zsh and fish. A backslash stands outside
// the quotes, since fish does not take every one in quotes literally.
func ShellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'"'"'`, `\`, `'\\'`).Replace(s) + "'"
}
