//go:build unix

package main

import (
	"github.com/fencelock/fencelock/cmd/fencelock/internal/cli"
	_ "github.com/fencelock/fencelock/cmd/fencelock/internal/early"
)

func main() { cli.Main() }
