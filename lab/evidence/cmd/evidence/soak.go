package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/fencelock/fencelock/lab/evidence"
)

// soak runs the script behind "make soak", which ends with an error at the first violation. An interrupt
// ends it, too, and keeps what is checked.
func soak(f flags) (r evidence.Report, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cmd := exec.CommandContext(ctx, ".ci/chaos", fmt.Sprint(f.acquisitions))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	var s soaked
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Println(lines.Text())
		s.add(lines.Text())
	}
	r.Nemesis = s
	if err := cmd.Wait(); ctx.Err() == nil {
		return r, err
	}
	return r, nil
}

// soaked are the runs so far, those of one engine as one.
type soaked []evidence.Nemesis

var (
	beginsRun = regexp.MustCompile(`^(\S+): \d+ workers, TTL \S+, seed (\d+), (\d+)m?(\d*)s$`)
	counts    = regexp.MustCompile(`\d+`)
)

// add adds a line of the script: one that begins a run, or one of the run that began last.
func (s *soaked) add(line string) {
	if f := beginsRun.FindStringSubmatch(line); f != nil {
		i := slices.IndexFunc(*s, func(n evidence.Nemesis) bool { return n.Engine == f[1] })
		n := evidence.Nemesis{Engine: f[1], Seed: uint64(number(f[2]))}
		if i >= 0 {
			n = (*s)[i]
			*s = slices.Delete(*s, i, i+1)
		}
		if n.Seconds += number(f[3]); f[4] != "" {
			n.Seconds += 59*number(f[3]) + number(f[4])
		}
		*s = append(*s, n)
		return
	}
	if len(*s) == 0 {
		return
	}
	last := &(*s)[len(*s)-1]
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "acquisitions":
		last.Acquisitions += number(strings.TrimSpace(rest))
	case "faults":
		for _, n := range counts.FindAllString(rest, -1) {
			last.Faults += number(n)
		}
	}
}
