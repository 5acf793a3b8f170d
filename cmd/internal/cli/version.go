//go:build unix

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A release build sets both with -ldflags=-X. Other builds leave them empty, and thisBuild reads
// what Go recorded.
var releaseVersion, releaseCommit string

// newVersion returns the verb version.
func newVersion(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "version [flags]", GroupID: moreVerb, Short: "Print the version.",
		Args: Arguments(), RunE: func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

// build is what version prints; docs/cli-json.md documents it.
type build struct {
	Version  string `json:"version"`            // of the module; "(devel)" if it was not installed as one
	Revision string `json:"revision,omitempty"` // of the source, where the build knows it
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// printVersion prints the version of the module, the commit if the build knows it, the version of Go,
// and the platform.
func (a *App) printVersion() error {
	b := thisBuild()
	version := b.Version
	if b.Revision != "" {
		version += " " + b.Revision
	}
	return a.Print(b, fmt.Sprintf("fencelock %s %s %s/%s\n", version, b.Go, b.OS, b.Arch))
}

// thisBuild returns the version that the release build set, or else what Go recorded in the
// program.
func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if releaseVersion != "" {
		b.Version, b.Revision = releaseVersion, releaseCommit
		return b
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
