//go:build unix

package main

import "github.com/fencelock/fencelock/cmd/fencelock/internal/cli"

func main() { cli.Main() }
