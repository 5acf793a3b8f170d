//go:build unix

package main

import (
	"github.com/fencelock/fencelock/cmd/internal/cli"
	_ "github.com/fencelock/fencelock/cmd/internal/early"
)

func main() { cli.Main(nil) }
