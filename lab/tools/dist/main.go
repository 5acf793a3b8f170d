// Command dist builds a release of fencelock from the commit that is checked out:
//
//	go run -C lab/tools/dist . packages [-version V] [-o DIR] [-targets linux/amd64,...]
//	go run -C lab/tools/dist . image [-version V] [-o DIR]
//	go run -C lab/tools/dist . modules -version V [-proxy DIR]
//
// packages writes archives, packages for deb, rpm and apk, container images, SBOMs, an install
// script, a Homebrew formula and SHA256SUMS. image writes the build context of contrib/packaging/Containerfile.
// modules makes the nested modules require the published version V.
//
// SOURCE_DATE_EPOCH, or else the time of the commit, is the time of every file. With the same
// commit and the same Go the files are the same, byte for byte.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/modules"
)

const usage = "usage: dist packages|image|modules [flags]; dist packages -h lists the flags"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("dist "+args[0], flag.ContinueOnError)
	root := flags.String("root", "../../..", "the `directory` of the source")
	version := flags.String("version", "", "the version, such as v1.2.3; by default the tag of the commit, or a pseudo-version")
	out := flags.String("o", "", "the `directory` to write to; by default dist in the source, or dist/image")
	targets := flags.String("targets", strings.Join(allTargets, ","), "the systems to build for")
	proxy := flags.String("proxy", "", "modules: also write a module proxy to this `directory`")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New(usage)
	}
	source, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	if args[0] == "modules" {
		return modules.Release(ctx, source, *version, *proxy)
	}
	r, err := newRelease(ctx, source, *version)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	switch args[0] {
	case "packages":
		if *out == "" {
			dir = filepath.Join(source, "dist")
		}
		return r.packages(ctx, dir, strings.Split(*targets, ","))
	case "image":
		if *out == "" {
			dir = filepath.Join(source, "dist", "image")
		}
		return r.imageContext(ctx, dir, strings.Split(*targets, ","))
	}
	return errors.New(usage)
}
