package termtext

import "strings"

// harmless is the characters that a word may have without quotes.
const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"

// ShellWord returns s as one word of a shell: as it is if that is safe, or quoted.
func ShellWord(s string) string {
	if strings.Trim(s, harmless) == "" {
		return s
	}
	return ShellQuote(s)
}

// ShellQuote returns s as one single-quoted word of bash, zsh and fish.
func ShellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
